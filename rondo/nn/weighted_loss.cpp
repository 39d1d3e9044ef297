#include "rondo/nn/weighted_loss.h"

#include <torch/types.h>

#include <map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/loss_sizes.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {
namespace {

// Losses of the elements of a target, in its shape.
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
    // A mean of 16 bits would lose digits of the loss.
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
      // Of a loss that counts predictions the mean over all elements, which batches have in proportion.
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
