#pragma once

#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/gradients/step_announcement.h"

namespace rondo {

// Sparse gradients (Embedding and EmbeddingBag with sparse(true)) between ranks, at the end of a backward
// pass: ranks exchange the rows that they have and add them up in rank order. A gradient of which the ranks
// together have so many rows that all of it would be fewer bytes is made dense and all-reduced instead; then
// `.grad` is dense afterwards. Both sides of that choice are the same on all ranks. One thread at a time.
class SparseExchange {
 public:
  // `parameters` have two or more dimensions, the first of which counts rows.
  SparseExchange(std::vector<ModelTensor> parameters, Group group);

  // Every gradient becomes the sum over the ranks of weight.scale * gradient; one that no rank has stays
  // undefined, and where `untouched` (one flag a parameter, the same on all ranks) says so `.grad` stays as
  // it is. Collective, blocking. Throws CommunicationError as the engine throws it.
  void combine(const GradientWeight& weight, const std::vector<bool>& untouched);

 private:
  void gather_rows(const at::Tensor& parameter, const GradientWeight& weight,
                   const std::vector<std::int64_t>& rows);
  void reduce_dense(const at::Tensor& parameter, const GradientWeight& weight);

  std::vector<ModelTensor> parameters_;
  Group group_;
};

}  // namespace rondo
