#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include "rondo/backend/group.h"

namespace rondo {

// Batch normalisation over the joint batch of a group of ranks: in training mean and variance are those of
// all ranks' samples, however many each has (none, too), and gradients flow through them to every rank, so
// that training equals one process on the joint batch. Running statistics are the same on all ranks. In
// evaluation, and on a group of one rank or none, it is torch::nn::BatchNorm. Parameters, buffers, options
// and their names are BatchNorm's as well; input is [samples, features, ...] with any number of dimensions
// from 2 on.
//
// Each forward and each backward pass in training communicates (2 x features values a rank, blocking), so all
// ranks call it equally often and in the same order. The group must not be used for anything else meanwhile:
// give it one of its own (Context::new_group). A rank's gradients count as SampleInfo::weight says, which the
// trainer sets; outside of a SampleScope all ranks count the same, which is what DistributedDataParallel
// does. forward() throws UsageError for an input that does not fit or a joint batch of one value a feature;
// CommunicationError.
class SyncBatchNormImpl : public torch::nn::NormImplBase<1, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  // Of so many features, with the default options and no group yet.
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
  void set_group(Group group) { group_ = std::move(group); }  // before the first forward; on all ranks
  const Group& group() const { return group_; }               // whose samples are normalised together

 protected:
  // Throws UsageError for an input with fewer than 2 dimensions.
  void _check_input_dim(const at::Tensor& input) override;

 private:
  void adopt(std::vector<at::Tensor> parameters, const std::vector<at::Tensor>& buffers);
  at::Tensor normalise_jointly(const at::Tensor& input);
  // How far running statistics move towards this batch's; counts the batch.
  double next_momentum();

  Group group_;
};
TORCH_MODULE(SyncBatchNorm);

// Makes every batch normalisation in `model` one over `group`, and returns how many there are. Children of a
// torch::nn::Sequential are replaced (a torch::nn::BatchNorm by a SyncBatchNorm with the same tensors under
// the same names), and SyncBatchNorms get the group. Throws UsageError naming the module for a BatchNorm
// elsewhere, since a member of that type in a C++ class cannot be exchanged: declare it as
// rondo::SyncBatchNorm. Call it before an optimizer or a strategy sees the model.
int synchronise_batch_norms(torch::nn::Module& model, const Group& group);

}  // namespace rondo
