#include "rondo/nn/loss.h"

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <algorithm>
#include <map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/loss_sizes.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/parallel_communication.h"
#include "rondo/nn/parallel_cross_entropy.h"

namespace rondo {
namespace {

// Of a loss's sum over all predictions.
Loss loss_of_sum(const at::Tensor& sum, std::int64_t predictions) {
  return {sum / static_cast<double>(std::max<std::int64_t>(1, predictions)), sum.detach(), predictions};
}

std::string shape_or_none(const at::Tensor& tensor) {
  return tensor.defined() ? describe_shape(tensor) : std::string("no tensor");
}

// Converts elements of 16 bits to float32.
at::Tensor in_float(const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

// Sums `losses(reduction)`. The sum of elements of 16 bits is of float32: a sum over many predictions would
// lose digits, and overflow in float16.
template <class Losses>
at::Tensor sum_of_losses(const at::Tensor& output, const Losses& losses) {
  if (!at::isReducedFloatingType(output.scalar_type())) return losses(at::Reduction::Sum);
  return losses(at::Reduction::None).sum(at::kFloat);
}

using ElementLoss = at::Tensor (*)(const at::Tensor& output, const at::Tensor& target,
                                   std::int64_t reduction);

const std::map<std::string, ElementLoss>& element_losses() {
  static const std::map<std::string, ElementLoss> losses = {
      {"bce_with_logits",
       [](const at::Tensor& output, const at::Tensor& target, std::int64_t reduction) {
         return at::binary_cross_entropy_with_logits(output, target, {}, {}, reduction);
       }},
      {"l1", [](const at::Tensor& output, const at::Tensor& target,
                std::int64_t reduction) { return at::l1_loss(output, target, reduction); }},
      {"mse", [](const at::Tensor& output, const at::Tensor& target,
                 std::int64_t reduction) { return at::mse_loss(output, target, reduction); }},
      {"smooth_l1", [](const at::Tensor& output, const at::Tensor& target,
                       std::int64_t reduction) { return at::smooth_l1_loss(output, target, reduction); }},
  };
  return losses;
}

Loss nll(const at::Tensor& log_probabilities, const at::Tensor& target) {
  const at::Tensor rows = log_probabilities.reshape({target.numel(), log_probabilities.size(-1)});
  const at::Tensor sum = sum_of_losses(rows, [&](std::int64_t reduction) {
    return at::nll_loss(rows, target.reshape({target.numel()}), {}, reduction, kIgnoredTarget);
  });
  return loss_of_sum(sum, count_predictions(target));
}

}  // namespace

std::int64_t count_predictions(const at::Tensor& target) {
  if (target.scalar_type() != at::kLong) return target.numel();
  if (target.is_cpu() && target.is_contiguous()) {
    // Far quicker than three operations on a tensor, which a small model's step would feel.
    const auto* first = target.const_data_ptr<std::int64_t>();
    return target.numel() - std::count(first, first + target.numel(), kIgnoredTarget);
  }
  return target.ne(kIgnoredTarget).sum().item<std::int64_t>();
}

Loss cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  check_flat_classes("cross_entropy", logits, target);
  const at::Tensor rows = logits.reshape({target.numel(), logits.size(-1)});
  const at::Tensor sum = sum_of_losses(rows, [&](std::int64_t reduction) {
    return at::cross_entropy_loss(rows, target.reshape({target.numel()}), {}, reduction, kIgnoredTarget);
  });
  return loss_of_sum(sum, count_predictions(target));
}

at::Tensor count_correct(const at::Tensor& logits, const at::Tensor& target) {
  return logits.detach().argmax(-1).eq(target).sum();
}

void LossFunction::check_single(std::size_t outputs, std::size_t targets) {
  if (outputs == 1 && targets == 1) return;
  throw UsageError(str("the loss function takes one output and one target, but the model gives ", outputs,
                       " outputs and the batch ", targets,
                       " targets; give a function of (outputs, targets) as vectors of tensors"));
}

Loss LossFunction::operator()(const Tensors& outputs, const Tensors& targets, std::int64_t samples) const {
  Loss loss = compute(outputs, targets, samples);
  if (!loss.mean.requires_grad() && at::GradMode::is_enabled() &&
      std::any_of(outputs.begin(), outputs.end(), [](const at::Tensor& t) { return t.requires_grad(); })) {
    throw UsageError(
        "the loss function returned a loss without a gradient, though the model's outputs require one; "
        "compute it from the outputs, and do not detach it");
  }
  return loss;
}

Loss LossFunction::compute(const Tensors& outputs, const Tensors& targets, std::int64_t samples) const {
  Loss loss;
  if (counted_) {
    loss = counted_(outputs, targets);
  } else {
    loss.predictions = samples;
    if (samples > 0) {
      loss.mean = mean_(outputs, targets);
    } else {
      // The mean over nothing would be NaN.
      loss.mean = outputs.front().sum() * 0;
      for (std::size_t i = 1; i < outputs.size(); ++i) loss.mean = loss.mean + outputs[i].sum() * 0;
    }
    if (loss.mean.defined()) loss.sum = in_float(loss.mean.detach()) * static_cast<double>(samples);
  }
  if (!loss.mean.defined() || loss.mean.numel() != 1) {
    throw UsageError(str("the loss function returned ", shape_or_none(loss.mean),
                         "; it must return a tensor with one element, the mean over the batch"));
  }
  if (!loss.sum.defined() || loss.sum.numel() != 1) {
    throw UsageError(str("the loss function returned a Loss of ", loss.predictions,
                         " predictions whose sum is ", shape_or_none(loss.sum),
                         "; it must be a tensor with one element, the sum over the predictions, detached"));
  }
  return loss;
}

std::int64_t LossFunction::predictions(const Tensors& targets, std::int64_t samples) const {
  if (!counted_ || targets.empty()) return samples;
  return is_of_elements_ ? targets.front().numel() : count_predictions(targets.front());
}

LossFunction LossFunction::of_divided_classes(const Group& group) const {
  if (is_cross_entropy_) {
    return [group](const at::Tensor& logits, const at::Tensor& target) {
      return loss_of_sum(cross_entropy_of_parts(logits, target, group), count_predictions(target));
    };
  }
  LossFunction gathering = *this;
  const auto gather = [group](Tensors outputs) {
    outputs.front() = gather_from_ranks(outputs.front(), outputs.front().dim() - 1, group);
    return outputs;
  };
  if (counted_)
    gathering.counted_ = [gather, whole = counted_](const Tensors& outputs, const Tensors& targets) {
      return whole(gather(outputs), targets);
    };
  if (mean_)
    gathering.mean_ = [gather, whole = mean_](const Tensors& outputs, const Tensors& targets) {
      return whole(gather(outputs), targets);
    };
  return gathering;
}

LossFunction make_loss(const std::string& name) {
  if (const auto found = element_losses().find(name); found != element_losses().end()) {
    LossFunction loss = [name, losses = found->second](const at::Tensor& output, const at::Tensor& target) {
      check_same_sizes(name, output, target);
      const at::Tensor same_type = target.to(output.scalar_type());
      const at::Tensor sum =
          sum_of_losses(output, [&](std::int64_t reduction) { return losses(output, same_type, reduction); });
      return loss_of_sum(sum, target.numel());
    };
    loss.is_of_elements_ = true;
    return loss;
  }
  const auto of_classes = [&](Loss (*loss)(const at::Tensor&, const at::Tensor&)) -> LossFunction {
    return [name, loss](const at::Tensor& output, const at::Tensor& target) {
      check_classes(name, output, target);
      return loss(output, target);
    };
  };
  if (name == "cross_entropy") {
    LossFunction loss = of_classes(cross_entropy);
    loss.is_cross_entropy_ = true;
    return loss;
  }
  if (name == "nll") return of_classes(nll);
  throw UsageError(str("unknown loss '", name, "'; known are: ", join(loss_names(), ", ")));
}

std::vector<std::string> loss_names() {
  std::vector<std::string> names = {"cross_entropy", "nll"};
  for (const auto& [name, sum] : element_losses()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace rondo
