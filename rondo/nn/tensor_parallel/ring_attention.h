#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/sample_dropout.h"

// Attention over a sequence that is divided among ranks (context parallelism). Keys and values move round a
// ring: each rank sees all of them and holds those of at most two ranks at a time (ring attention, arXiv
// 2310.01889).
namespace rondo {

// Returns a rank's pieces, in order, of the 2 * ranks equal pieces of the sequence: one from the front and
// its mirror image from the back. So all ranks have the same work under causal attention (zig-zag).
std::vector<std::int64_t> sequence_pieces(int rank, int ranks);
// Returns a rank's pieces of `tensor` along `dimension`. Throws UsageError if 2 * ranks do not divide the
// length, naming both.
at::Tensor own_sequence(const at::Tensor& tensor, std::int64_t dimension, const Group& group);
// Returns the whole tensor from the ranks' pieces along `dimension`. Collective; not differentiable.
at::Tensor whole_sequence(const at::Tensor& own, std::int64_t dimension, const Group& group);

// Returns softmax(query key^T / sqrt(size of a head)) value for the ranks' pieces, [samples, heads, own
// length, size]. With `causal` a position sees itself and earlier positions of the whole sequence. The output
// has the own positions. `dropout` applies to the probabilities, with its mask for the whole sequence.
// Differentiable once; collective in forward and backward. Throws UsageError if the dropout is active outside
// a SampleScope.
at::Tensor ring_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          bool causal, const Group& group, const SampleDropout& dropout = nullptr);

// A model that can compute on own_sequence() of its inputs alone.
class ContextParallelModel {
 public:
  virtual ~ContextParallelModel() = default;
  // Declares that inputs are this rank's pieces of sequences, [samples, own length]. Call it before a
  // strategy is given the model. Throws UsageError if the model does not support it.
  virtual void divide_context(const Group& group) = 0;
};

}  // namespace rondo
