#pragma once

#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/gradients/step_announcement.h"

namespace rondo {

// An exchange of sparse gradients (Embedding and EmbeddingBag with sparse(true)) at the end of a backward
// pass. Ranks gather each other's rows and add them in rank order. If the rows of all ranks would take more
// bytes than the whole gradient, it is converted to dense and all-reduced, and `.grad` is dense afterwards.
// All ranks make the same choice. Not thread-safe.
class SparseExchange {
 public:
  // `parameters` have two or more dimensions; the first counts rows.
  SparseExchange(std::vector<ModelTensor> parameters, Group group);

  // Replaces every gradient with the sum over the ranks of weight.scale * gradient. A gradient that no rank
  // has stays undefined. `.grad` stays as it is where `untouched` (one flag per parameter, the same on all
  // ranks) is set. Collective and blocking. Throws CommunicationError.
  void combine(const GradientWeight& weight, const std::vector<bool>& untouched);

 private:
  void gather_rows(const at::Tensor& parameter, const GradientWeight& weight,
                   const std::vector<std::int64_t>& rows);
  void reduce_dense(const at::Tensor& parameter, const GradientWeight& weight);

  std::vector<ModelTensor> parameters_;
  Group group_;
};

}  // namespace rondo
