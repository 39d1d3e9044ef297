#include "rondo/nn/sync_batch_norm.h"

#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/joint_normalisation.h"
#include "rondo/nn/sample_scope.h"

namespace rondo {

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, Group group)
    : NormImplBase(options), group_(std::move(group)) {}

void SyncBatchNormImpl::_check_input_dim(const at::Tensor& input) {
  if (input.dim() >= 2 && input.size(1) == options.num_features()) return;
  throw UsageError(str("batch normalisation: input of shape [", join(input.sizes(), ", "),
                       "], expected [samples, ", options.num_features(), ", ...]"));
}

void SyncBatchNormImpl::adopt(std::vector<at::Tensor> parameters, const std::vector<at::Tensor>& buffers) {
  weight = parameters_["weight"] = std::move(parameters[0]);
  bias = parameters_["bias"] = std::move(parameters[1]);
  // libtorch lets nobody exchange a buffer, but its memory can be shared.
  const std::vector<at::Tensor> own = {running_mean, running_var, num_batches_tracked};
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i].defined()) own[i].set_data(buffers[i]);
  }
}

double SyncBatchNormImpl::next_momentum() {
  if (!is_training() || !options.track_running_stats()) return 0;
  num_batches_tracked += 1;
  return options.momentum() ? *options.momentum() : 1.0 / num_batches_tracked.item<double>();
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  _check_input_dim(input);
  const bool by_batch = is_training() || !options.track_running_stats();
  if (is_training() && group_.member() && group_.size() > 1) return normalise_jointly(input);
  return at::batch_norm(input, weight, bias, running_mean, running_var, by_batch, next_momentum(),
                        options.eps(), /*cudnn_enabled=*/true);
}

at::Tensor SyncBatchNormImpl::normalise_jointly(const at::Tensor& input) {
  const JointStatistics statistics = joint_statistics(input, group_);
  if (statistics.count < 2) {
    throw UsageError(
        str("batch normalisation needs more than one value a feature in training; the joint batch of ",
            group_.size(), " ranks has ", statistics.count));
  }
  if (const double momentum = next_momentum(); momentum > 0) {
    const at::NoGradGuard no_gradient;
    const double unbiased = statistics.count / (statistics.count - 1);
    running_mean.lerp_(statistics.mean.to(running_mean.scalar_type()), momentum);
    running_var.lerp_((statistics.variance * unbiased).to(running_var.scalar_type()), momentum);
  }
  const std::shared_ptr<const SampleInfo> info = SampleScope::current();
  return normalise(input, weight, bias, statistics,
                   {.group = group_, .weight = info ? info->weight : 1.0, .epsilon = options.eps()});
}

}  // namespace rondo
