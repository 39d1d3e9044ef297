#include "rondo/nn/sync_batch_norm.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/sample_dropout.h"

namespace rondo {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Mean and variance of each feature over the samples of all ranks: float64 [features] on the input's device.
struct JointStatistics {
  at::Tensor mean;
  at::Tensor variance;  // with divisor `count`
  double count = 0;     // number of values of each feature, on all ranks
};

struct NormalisationOptions {
  Group group = {};
  double weight = 1;  // weight of this rank's gradients in the combined gradient
  double epsilon = 1e-5;
};

// Returns all dimensions except that of the features.
std::vector<std::int64_t> reduced_dimensions(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions(static_cast<std::size_t>(input.dim()));
  std::iota(dimensions.begin(), dimensions.end(), 0);
  dimensions.erase(dimensions.begin() + 1);
  return dimensions;
}

// Reshapes [features] to [1, features, 1, ...], in the dtype of `like`.
at::Tensor along_features(const at::Tensor& values, const at::Tensor& like) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
  shape[1] = values.size(0);
  return values.to(like.scalar_type()).view(shape);
}

// Converts half precision, which has too few digits for sums, to float32.
at::Tensor computable(const at::Tensor& tensor) {
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return half ? tensor.to(at::kFloat) : tensor;
}

class Normalise : public torch::autograd::Function<Normalise> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, const JointStatistics& statistics,
                            const NormalisationOptions& options) {
    const at::Tensor x = computable(input);
    const at::Tensor scale = (statistics.variance + options.epsilon).rsqrt();
    const auto as_input = [&](const at::Tensor& t) { return t.to(x.scalar_type()); };
    // Uses the evaluation kernel: one pass with given statistics.
    const at::Tensor result =
        at::batch_norm(x, as_input(weight), as_input(bias), as_input(statistics.mean),
                       as_input(statistics.variance), /*training=*/false, 0.0, options.epsilon, false);
    context->save_for_backward({input, weight, statistics.mean, scale});
    context->saved_data["count"] = statistics.count;
    context->saved_data["weight"] = options.weight;
    context->saved_data["group"] = at::IValue::make_capsule(c10::make_intrusive<GroupHolder>(options.group));
    return result.to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled()) {
      throw UsageError("synchronised batch normalisation cannot be differentiated twice (create_graph)");
    }
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const at::Tensor& scale = saved[3];
    const at::Tensor x = computable(saved[0]), dy = computable(gradients[0]).to(x.scalar_type());
    const double own = context->saved_data["weight"].toDouble();
    const Group group =
        c10::static_intrusive_pointer_cast<GroupHolder>(context->saved_data["group"].toCapsule())->group;

    const std::vector<std::int64_t> dimensions = reduced_dimensions(x);
    const at::Tensor centred = x - along_features(saved[2], x);
    const at::Tensor sum = dy.sum(dimensions, false, at::kDouble);
    const at::Tensor sum_with_x = (dy * centred).sum(dimensions, false, at::kDouble) * scale;
    // A rank with weight 0 may have any values, including infinities.
    at::Tensor joint =
        own == 0 ? at::zeros({2, sum.size(0)}, sum.options()) : at::stack({sum, sum_with_x}) * own;
    all_reduce(joint, group);

    at::Tensor input_gradient;
    if (context->needs_input_grad(0)) {
      if (own == 0) {
        input_gradient = at::zeros_like(x);
      } else {
        joint = joint / (own * context->saved_data["count"].toDouble());
        const at::Tensor factor = scale * weight.to(at::kDouble);
        input_gradient = (dy - along_features(joint[0], x) - centred * along_features(joint[1] * scale, x)) *
                         along_features(factor, x);
      }
      input_gradient = input_gradient.to(saved[0].scalar_type());
    }
    return {input_gradient, sum_with_x.to(weight.scalar_type()), sum.to(weight.scalar_type()), at::Tensor(),
            at::Tensor()};
  }

 private:
  // A holder that keeps a group in the graph until the backward pass.
  struct GroupHolder : torch::CustomClassHolder {
    explicit GroupHolder(Group g) : group(std::move(g)) {}
    Group group;
  };
};

// Returns the joint statistics of `input` [samples, features, ...] on all ranks. Each rank computes its mean
// and squared deviations, which are then merged in rank order (Chan, Golub and LeVeque, "Updating formulae
// and a pairwise algorithm for computing sample variances", 1979). So a large mean costs no digits, and all
// ranks get the same bits. Collective.
JointStatistics joint_statistics(const at::Tensor& input, const Group& group) {
  const at::NoGradGuard no_gradient;
  const std::int64_t features = input.size(1);
  const std::int64_t mine = input.numel() / std::max<std::int64_t>(features, 1);
  // Rows: mean, squared deviations, number of values.
  at::Tensor own = at::zeros({3, features}, input.options().dtype(at::kDouble));
  if (mine > 0) {
    const auto [variance, mean] =
        at::var_mean(computable(input), at::OptionalIntArrayRef(reduced_dimensions(input)), /*correction=*/0);
    own[0].copy_(mean);
    own[1].copy_(variance).mul_(static_cast<double>(mine));
    own[2].fill_(static_cast<double>(mine));
  }
  const std::vector<at::Tensor> ranks = all_gather(own, group);
  at::Tensor count = at::zeros({features}, own.options()), mean = count.clone(), deviations = count.clone();
  for (const at::Tensor& rank : ranks) {
    const at::Tensor joint = count + rank[2];
    const at::Tensor share = rank[2] / joint.clamp_min(1);
    const at::Tensor difference = rank[0] - mean;
    deviations = deviations + rank[1] + difference.square() * count * share;
    mean = mean + difference * share;
    count = joint;
  }
  const double total = features > 0 ? count[0].item<double>() : 0;
  return {mean, deviations / std::max(total, 1.0), total};
}

// Returns (input - mean) / sqrt(variance + epsilon) * weight + bias; weight and bias may be undefined.
// Backward differentiates a function of all ranks' inputs. With L_r the loss whose backward pass rank r runs
// and w_r its weight, it computes the gradient of sum_r w_r L_r with respect to this rank's input, divided by
// this rank's weight. The strategy multiplies by this weight when it combines gradients. Gradients of weight
// and bias are this rank's part. Backward is collective and not differentiable.
at::Tensor normalise(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                     const JointStatistics& statistics, const NormalisationOptions& options) {
  const at::TensorOptions like = input.options().requires_grad(false);
  return Normalise::apply(input, weight.defined() ? weight : at::ones({input.size(1)}, like),
                          bias.defined() ? bias : at::zeros({input.size(1)}, like), statistics, options);
}

}  // namespace

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
  // libtorch does not allow replacing a buffer, but its memory can be shared.
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

namespace {

using torch::nn::Module;

// Returns `module` as a SyncBatchNorm with the same tensors; null if it is not a BatchNorm.
std::shared_ptr<SyncBatchNormImpl> synchronised(const Module& module, const Group& group) {
  if (const auto* norm = dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module))
    return std::make_shared<SyncBatchNormImpl>(*norm, group);
  if (const auto* norm = dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module))
    return std::make_shared<SyncBatchNormImpl>(*norm, group);
  if (const auto* norm = dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module))
    return std::make_shared<SyncBatchNormImpl>(*norm, group);
  return nullptr;
}

// Collects all changes before making any, so that an error leaves the model unchanged.
class Conversion {
 public:
  Conversion(Module& model, const Group& group) : group_(group) { visit(model, ""); }

  int run() const {
    for (const auto& action : actions_) action();
    return static_cast<int>(actions_.size());
  }

 private:
  void visit(Module& module, const std::string& path) {
    if (auto* norm = dynamic_cast<SyncBatchNormImpl*>(&module)) {
      actions_.push_back([norm, this] { norm->set_group(group_); });
    } else if (synchronised(module, group_)) {
      throw UsageError(
          str("the batch normalisation ", path.empty() ? "that is the whole model" : "'" + path + "'",
              " cannot be made one over all ranks: it is a member of its own type. Declare it as "
              "rondo::SyncBatchNorm, or put it into a torch::nn::Sequential"));
    }
    auto* sequence = dynamic_cast<torch::nn::SequentialImpl*>(&module);
    for (const auto& child : module.named_children()) {
      const std::string name = path.empty() ? child.key() : path + "." + child.key();
      if (auto norm = sequence ? synchronised(*child.value(), group_) : nullptr) {
        actions_.push_back([sequence, norm, old = child.value(), key = child.key()] {
          for (torch::nn::AnyModule& slot : *sequence) {
            if (slot.ptr() == old) slot = torch::nn::AnyModule(norm);
          }
          sequence->replace_module(key, norm);
        });
      } else {
        visit(*child.value(), name);
      }
    }
  }

  const Group& group_;
  std::vector<std::function<void()>> actions_;
};

}  // namespace

int synchronise_batch_norms(Module& model, const Group& group) { return Conversion(model, group).run(); }

}  // namespace rondo
