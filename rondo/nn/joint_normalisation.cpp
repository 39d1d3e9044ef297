#include "rondo/nn/joint_normalisation.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"

namespace rondo {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// All dimensions but that of the features.
std::vector<std::int64_t> reduced_dimensions(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions(static_cast<std::size_t>(input.dim()));
  std::iota(dimensions.begin(), dimensions.end(), 0);
  dimensions.erase(dimensions.begin() + 1);
  return dimensions;
}

// [features] as [1, features, 1, ...], in the type of `like`.
at::Tensor along_features(const at::Tensor& values, const at::Tensor& like) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
  shape[1] = values.size(0);
  return values.to(like.scalar_type()).view(shape);
}

// Half precision has too few digits for sums.
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
    // The kernel of evaluation: one pass with statistics that are given.
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
    // A rank of weight 0 may hold anything, infinities too.
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
  // What lets a group wait in the graph for the backward pass.
  struct GroupHolder : torch::CustomClassHolder {
    explicit GroupHolder(Group g) : group(std::move(g)) {}
    Group group;
  };
};

}  // namespace

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

at::Tensor normalise(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                     const JointStatistics& statistics, const NormalisationOptions& options) {
  const at::TensorOptions like = input.options().requires_grad(false);
  return Normalise::apply(input, weight.defined() ? weight : at::ones({input.size(1)}, like),
                          bias.defined() ? bias : at::zeros({input.size(1)}, like), statistics, options);
}

}  // namespace rondo
