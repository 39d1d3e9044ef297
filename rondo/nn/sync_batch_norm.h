#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include "rondo/backend/group.h"

namespace rondo {

// Batch normalisation over the joint batch of a group of ranks. In training mean and variance are those of
// all ranks' samples, however many each rank has (possibly none). Gradients flow through them to every rank,
// so training equals one process on the joint batch. Running statistics are the same on all ranks. In
// evaluation, and on a group of at most one rank, it is torch::nn::BatchNorm. Parameters, buffers, options
// and their names are BatchNorm's; input is [samples, features, ...] with at least 2 dimensions.
//
// Each forward and backward pass in training communicates 2 x features values for each rank and blocks, so
// all ranks must call it equally often and in the same order. Use a group of its own (Context::new_group): it
// must not carry other operations meanwhile. A rank's gradients have the weight SampleInfo::weight, which the
// trainer sets; outside a SampleScope all ranks have the same weight, as in DistributedDataParallel.
// forward() throws UsageError for an input that does not fit or a joint batch of one value for each feature,
// and CommunicationError.
class SyncBatchNormImpl : public torch::nn::NormImplBase<1, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  // Uses the default options and no group.
  explicit SyncBatchNormImpl(std::int64_t features)
      : SyncBatchNormImpl(torch::nn::BatchNormOptions(features)) {}
  // Without a group it is torch::nn::BatchNorm.
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, Group group = {});
  // Shares the parameters and the buffers' memory of a torch::nn::BatchNorm1d, 2d or 3d.
  template <size_t D, class Derived>
  SyncBatchNormImpl(const torch::nn::NormImplBase<D, Derived, torch::nn::BatchNormOptions>& other,
                    Group group)
      : SyncBatchNormImpl(other.options, std::move(group)) {
    adopt({other.weight, other.bias}, {other.running_mean, other.running_var, other.num_batches_tracked});
    train(other.is_training());
  }

  at::Tensor forward(const at::Tensor& input);  // [samples, features, ...] to the same shape and dtype
  void set_group(Group group) { group_ = std::move(group); }  // call before the first forward, on all ranks
  const Group& group() const { return group_; }               // ranks whose samples are normalised together

 protected:
  // Throws UsageError for an input with fewer than 2 dimensions.
  void _check_input_dim(const at::Tensor& input) override;

 private:
  void adopt(std::vector<at::Tensor> parameters, const std::vector<at::Tensor>& buffers);
  at::Tensor normalise_jointly(const at::Tensor& input);
  // Counts the batch, and returns the weight of its statistics in the running statistics.
  double next_momentum();

  Group group_;
};
TORCH_MODULE(SyncBatchNorm);

// Makes every batch normalisation in `model` synchronised over `group`, and returns their number. Replaces
// each torch::nn::BatchNorm in a torch::nn::Sequential by a SyncBatchNorm with the same tensors under the
// same names, and sets the group of each SyncBatchNorm. Throws UsageError naming the module for a BatchNorm
// elsewhere, because a C++ member of that type cannot be replaced: declare it as rondo::SyncBatchNorm. Call
// it before an optimizer or a strategy is given the model.
int synchronise_batch_norms(torch::nn::Module& model, const Group& group);

}  // namespace rondo
