#include "rondo/nn/loss.h"

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <algorithm>
#include <map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/parallel_communication.h"

namespace rondo {
namespace {

[[noreturn]] void refuse_sizes(const std::string& loss, const at::Tensor& output, const at::Tensor& target,
                               const char* allowed) {
  throw UsageError(str("loss ", loss, ": an output of ", describe_shape(output), " and a target of ",
                       describe_shape(target), "; ", allowed));
}

constexpr const char* kClasses =
    "the target is int64 and has the output's sizes without the last one, the classes";

// Checks that the loss of this name can compare an output with a target. Each function throws UsageError with
// the name, both sizes and the allowed sizes: libtorch itself broadcasts some of them, to a wrong loss.

// Checks losses of elements.
void check_same_sizes(const std::string& loss, const at::Tensor& output, const at::Tensor& target) {
  if (output.sizes() != target.sizes()) refuse_sizes(loss, output, target, "both must have the same sizes");
}

// Checks losses of classes: an int64 target with the output's sizes without the last one.
void check_classes(const std::string& loss, const at::Tensor& output, const at::Tensor& target) {
  const bool leads =
      output.dim() == target.dim() + 1 && output.sizes().slice(0, target.dim()) == target.sizes();
  if (!leads || target.scalar_type() != at::kLong) refuse_sizes(loss, output, target, kClasses);
}

// Checks losses of classes if the leading dimensions may have another arrangement.
void check_flat_classes(const std::string& loss, const at::Tensor& output, const at::Tensor& target) {
  if (output.dim() == 0 || output.numel() != target.numel() * output.size(-1) ||
      target.scalar_type() != at::kLong)
    refuse_sizes(loss, output, target, kClasses);
}

// Makes a Loss of the sum over all predictions.
Loss loss_of_sum(const at::Tensor& sum, std::int64_t predictions) {
  return {sum / static_cast<double>(std::max<std::int64_t>(1, predictions)), sum.detach(), predictions};
}

std::string shape_or_none(const at::Tensor& tensor) {
  return tensor.defined() ? describe_shape(tensor) : std::string("no tensor");
}

// Converts 16-bit elements to float32.
at::Tensor in_float(const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

// Sums `losses(reduction)`. 16-bit elements are summed in float32: a 16-bit sum over many predictions would
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
    // Far faster than three tensor operations, whose cost is visible in a small model's step.
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
      // The mean over an empty batch would be NaN.
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

namespace {

// Losses of the elements of a target, in the target's shape.
using ElementLosses = at::Tensor (*)(const at::Tensor& output, const at::Tensor& target,
                                     const at::Tensor& class_weights);

at::Tensor of_classes(const at::Tensor& logits, const at::Tensor& target, const at::Tensor& class_weights,
                      bool are_logits) {
  const at::Tensor rows = logits.reshape({target.numel(), logits.size(-1)});
  const at::Tensor classes = target.reshape({target.numel()});
  const at::Tensor losses =
      are_logits ? at::cross_entropy_loss(rows, classes, class_weights, at::Reduction::None, kIgnoredTarget)
                 : at::nll_loss(rows, classes, class_weights, at::Reduction::None, kIgnoredTarget);
  return losses.reshape(target.sizes());
}

const std::map<std::string, ElementLosses>& losses_of_elements() {
  static const std::map<std::string, ElementLosses> losses = {
      {"cross_entropy", [](const at::Tensor& output, const at::Tensor& target,
                           const at::Tensor& weights) { return of_classes(output, target, weights, true); }},
      {"nll", [](const at::Tensor& output, const at::Tensor& target,
                 const at::Tensor& weights) { return of_classes(output, target, weights, false); }},
      {"bce_with_logits",
       [](const at::Tensor& output, const at::Tensor& target, const at::Tensor&) {
         return at::binary_cross_entropy_with_logits(output, target, {}, {}, at::Reduction::None);
       }},
      {"l1", [](const at::Tensor& output, const at::Tensor& target,
                const at::Tensor&) { return at::l1_loss(output, target, at::Reduction::None); }},
      {"mse", [](const at::Tensor& output, const at::Tensor& target,
                 const at::Tensor&) { return at::mse_loss(output, target, at::Reduction::None); }},
      {"smooth_l1",
       [](const at::Tensor& output, const at::Tensor& target, const at::Tensor&) {
         return at::smooth_l1_loss(output, target, at::Reduction::None);
       }},
  };
  return losses;
}

}  // namespace

LossFunction weighted_loss(const std::string& name, const LossWeights& weights) {
  const auto found = losses_of_elements().find(name);
  if (found == losses_of_elements().end())
    throw UsageError(str("unknown loss '", name, "'; known are: ", join(loss_names(), ", ")));
  const bool has_classes = name == "cross_entropy" || name == "nll";
  if (!weights.classes.empty() && !has_classes)
    throw UsageError(str("loss ", name, " has no classes that class weights could be for"));
  for (const double weight : weights.classes) {
    if (!(weight >= 0)) throw UsageError(str("class weight ", weight, " must be zero or more"));
  }
  return [name, weights, has_classes, losses = found->second](const std::vector<at::Tensor>& outputs,
                                                              const std::vector<at::Tensor>& targets) {
    const std::size_t expected = weights.samples ? 2 : 1;
    if (outputs.size() != 1 || targets.size() != expected) {
      throw UsageError(str("loss ", name, weights.samples ? " with sample weights" : "",
                           " takes one output and ", expected, " targets, but there are ", outputs.size(),
                           " and ", targets.size()));
    }
    const at::Tensor& output = outputs.front();
    at::Tensor target = targets.front();
    has_classes ? check_classes(name, output, target) : check_same_sizes(name, output, target);
    const std::int64_t classes = has_classes ? output.size(-1) : 0;
    at::Tensor class_weights;
    if (!weights.classes.empty()) {
      if (static_cast<std::int64_t>(weights.classes.size()) != classes) {
        throw UsageError(str("there are ", weights.classes.size(), " class weights, and the output has ",
                             classes, " classes"));
      }
      class_weights = at::tensor(weights.classes, at::kDouble).to(output.options());
    }
    if (!has_classes) target = target.to(output.scalar_type());
    at::Tensor of_samples = losses(output, target, class_weights);
    // A 16-bit mean would lose digits of the loss.
    if (at::isReducedFloatingType(of_samples.scalar_type())) of_samples = of_samples.to(at::kFloat);
    if (of_samples.dim() > 1) of_samples = of_samples.flatten(1).mean(1);
    if (weights.samples) {
      const at::Tensor& own = targets[1];
      if (own.sizes() != of_samples.sizes())
        throw UsageError(str("sample weights are ", describe_shape(own), ", and a batch has ",
                             of_samples.size(0), " samples"));
      of_samples = of_samples * own.to(of_samples.scalar_type());
    }
    return of_samples.mean();
  };
}

LossFunction joint_loss(std::vector<OutputLoss> losses) {
  if (losses.empty()) throw UsageError("a joint loss needs the loss of an output");
  return [losses = std::move(losses)](const std::vector<at::Tensor>& outputs,
                                      const std::vector<at::Tensor>& targets) {
    if (outputs.size() != losses.size() || targets.size() != losses.size()) {
      throw UsageError(str("the joint loss is of ", losses.size(), " outputs, but the model gives ",
                           outputs.size(), " outputs and the batch ", targets.size(), " targets"));
    }
    at::Tensor sum;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const Loss loss = losses[i].loss.compute({outputs[i]}, {targets[i]}, targets[i].size(0));
      // For a loss that counts predictions: the mean over all elements, whose number is proportional to the
      // batch size.
      const double share = losses[i].loss.counts_predictions() ? static_cast<double>(loss.predictions) /
                                                                     static_cast<double>(targets[i].numel())
                                                               : 1.0;
      const at::Tensor part = loss.mean * (losses[i].weight * share);
      sum = sum.defined() ? sum + part : part;
    }
    return sum;
  };
}

}  // namespace rondo
