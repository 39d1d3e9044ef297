#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/sample_dropout.h"

// Attention over a sequence that is divided among ranks (context parallelism): keys and values pass round,
// each rank meets all of them and has no more than two ranks' at a time (ring attention, arXiv 2310.01889).
namespace rondo {

// Which of 2 * ranks equal pieces of the sequence a rank has, in this order: one from the front and its
// mirror image from the back, so that under causal attention all ranks have the same work (zig-zag).
std::vector<std::int64_t> sequence_pieces(int rank, int ranks);
// A rank's pieces of `tensor` along `dimension`. Throws UsageError for a length that 2 * ranks do not divide,
// naming both.
at::Tensor own_sequence(const at::Tensor& tensor, std::int64_t dimension, const Group& group);
// The whole from the ranks' pieces along `dimension`. Collective; not differentiable.
at::Tensor whole_sequence(const at::Tensor& own, std::int64_t dimension, const Group& group);

// softmax(query key^T / sqrt(size of a head)) value for [samples, heads, own length, size] of the pieces that
// each rank has; `causal` lets a position see itself and what came before in the whole sequence. The output
// is of the own positions. `dropout` applies to the probabilities, and loses what it loses over the whole
// sequence. Differentiable once; collective, forward and backward. Throws UsageError for a dropout that is
// active outside of a SampleScope.
at::Tensor ring_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          bool causal, const Group& group, const SampleDropout& dropout = nullptr);

// A model that can compute on the own_sequence() of its inputs alone.
class ContextParallelModel {
 public:
  virtual ~ContextParallelModel() = default;
  // From now on it is given this rank's pieces of sequences, [samples, own length]; before a strategy sees
  // it. Throws UsageError for a model that cannot.
  virtual void divide_context(const Group& group) = 0;
};

}  // namespace rondo
