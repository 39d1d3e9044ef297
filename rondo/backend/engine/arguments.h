#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "rondo/collective/dtype.h"

// Checks of what callers of c10d's interface pass, shared by rondo's own backends. All throw UsageError
// naming the operation and what it got.
namespace rondo {

Reduction reduction_of(const c10d::ReduceOp& op, at::ScalarType type);
// The one tensor of a list that must have one.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* operation);
// Several tensors of one rank as one contribution to a reduction; a new contiguous tensor.
at::Tensor combined(const std::vector<at::Tensor>& tensors, Reduction reduction, const char* operation);
// all_gather_coalesced's outputs, which c10d lists by rank, by input: element i has one tensor like input i
// for each of `size` ranks. No two overlap.
std::vector<std::vector<at::Tensor>> lists_by_input(const std::vector<std::vector<at::Tensor>>& by_rank,
                                                    const std::vector<at::Tensor>& inputs, int size,
                                                    const char* operation);
// The one list, with a tensor like `like` for each of `size` ranks.
const std::vector<at::Tensor>& only_list(const std::vector<std::vector<at::Tensor>>& lists, int size,
                                         const at::Tensor& like, const char* operation);
// As many of each as there are ranks.
void check_one_each(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, int size,
                    const char* operation);
// `tensor` along its first dimension by rank: `splits`, or equal parts where it is empty.
std::vector<at::Tensor> pieces_by_rank(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                                       int size, const char* operation);
// Whether the tensors are defined and not all of one number of elements.
bool differ_in_size(const std::vector<at::Tensor>& tensors);
// Throws UsageError unless there is a piece for each of `size` ranks, of one dtype, and `own` has as many
// elements as the piece of `rank`.
void check_pieces(const std::vector<at::Tensor>& pieces, const at::Tensor& own, int rank, int size,
                  const char* operation);
// `large` is `size` times `small`.
void check_divides(const at::Tensor& large, const at::Tensor& small, int size, const char* operation);

}  // namespace rondo
