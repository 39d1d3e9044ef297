#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "rondo/collective/dtype.h"

// Checks of the arguments of c10d's interface. All throw UsageError naming the operation and the argument.
namespace rondo {

using TensorList = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;

// Checks of a collective's arguments before it starts, with the messages of c10d's other backends, so that
// programs see the same errors. If every supported libtorch has a check, it is c10d's own.
void check_broadcast(const TensorList& tensors, const c10d::BroadcastOptions& options, int size);
void check_all_reduce(const TensorList& tensors, const c10d::ReduceOp& op);
void check_all_reduce_coalesced(const TensorList& tensors);
void check_reduce(const TensorList& tensors, const c10d::ReduceOptions& options, int size);
void check_all_gather(const TensorLists& outputs, const TensorList& inputs, int size);
// `outputs` has one list per rank, with a tensor like each input.
void check_all_gather_coalesced(const TensorLists& outputs, const TensorList& inputs, int size);
void check_gather(const TensorLists& outputs, const TensorList& inputs, const c10d::GatherOptions& options,
                  int rank, int size);
void check_scatter(const TensorList& outputs, const TensorLists& inputs, const c10d::ScatterOptions& options,
                   int rank, int size);

// Returns SUM for PREMUL_SUM, whose factor premultiplied() applies.
Reduction reduction_of(const c10d::ReduceOp& op, at::ScalarType type);
// Returns whether the operation is PREMUL_SUM.
bool premultiplies(const c10d::ReduceOp& op);
// Returns the tensor itself, or for PREMUL_SUM a new one, multiplied by the factor of `op`. reduction_of()
// has accepted `op` before.
at::Tensor premultiplied(const at::Tensor& tensor, const c10d::ReduceOp& op);
// Checks the peer of a message.
void check_peer(int peer, int size);
// Returns the one tensor of a list that must have one.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* operation);
// Combines several tensors of one rank into one contribution to a reduction; a new contiguous tensor.
at::Tensor combined(const std::vector<at::Tensor>& tensors, Reduction reduction, const char* operation);
// Converts all_gather_coalesced's outputs, which c10d lists by rank, to lists by input: element i has one
// tensor like input i for each of `size` ranks. Throws UsageError if any overlap.
std::vector<std::vector<at::Tensor>> lists_by_input(const std::vector<std::vector<at::Tensor>>& by_rank,
                                                    const std::vector<at::Tensor>& inputs, int size,
                                                    const char* operation);
// Returns the one list, with a tensor like `like` for each of `size` ranks.
const std::vector<at::Tensor>& only_list(const std::vector<std::vector<at::Tensor>>& lists, int size,
                                         const at::Tensor& like, const char* operation);
// Checks that there is one output and one input per rank.
void check_one_each(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, int size,
                    const char* operation);
// Splits `tensor` along its first dimension by rank: by `splits`, or in equal parts if it is empty.
std::vector<at::Tensor> pieces_by_rank(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                                       int size, const char* operation);
// Returns whether the tensors are defined and differ in their numbers of elements.
bool differ_in_size(const std::vector<at::Tensor>& tensors);
// Throws UsageError unless there is a piece for each of `size` ranks, of one dtype, and `own` has as many
// elements as the piece of `rank`.
void check_pieces(const std::vector<at::Tensor>& pieces, const at::Tensor& own, int rank, int size,
                  const char* operation);
// Checks that `large` has `size` times the elements of `small`.
void check_divides(const at::Tensor& large, const at::Tensor& small, int size, const char* operation);

// The tensors that one call of a collective reads and writes. References; the caller owns them.
struct TouchedTensors {
  std::span<const at::Tensor> inputs = {};   // only read
  std::span<const at::Tensor> outputs = {};  // written, or read and written
  // This rank and the number of ranks. The rank's own piece of the inputs may be its own piece of the
  // outputs. A tensor that holds one piece per rank counts as its pieces.
  int rank = 0;
  int ranks = 1;
};

// Throws UsageError, naming the operation and the tensors, if two outputs overlap, an output overlaps an
// input (except for a rank's own piece in place), or elements of one output share memory. Compares elements,
// not ranges: columns of one matrix do not overlap.
void check_overlaps(const TouchedTensors& tensors, const char* operation);

}  // namespace rondo
