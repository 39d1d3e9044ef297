#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "rondo/backend/group.h"

namespace rondo {

// The loss of a batch.
struct Loss {
  at::Tensor mean;               // scalar, differentiable: sum / max(1, predictions), so 0 for an empty batch
  at::Tensor sum;                // scalar, detached; add these (not means) to average over batches or ranks
  std::int64_t predictions = 0;  // targets in the batch that count: samples, or samples x context
};

// A target of this value asks for no prediction and counts nowhere (PyTorch's ignore_index).
inline constexpr std::int64_t kIgnoredTarget = -100;

// Predictions that `target` asks for: int64, the entries that are not ignored; of another type all.
std::int64_t count_predictions(const at::Tensor& target);

// `logits` [..., classes] of any float dtype against int64 `target` of the leading shape. An empty batch
// still gives a loss that gradients (of zero) flow from, so a rank that ran out of samples can keep taking
// part.
Loss cross_entropy(const at::Tensor& logits, const at::Tensor& target);

// Number of predictions whose largest logit is the target: of `logits` [..., classes] of any float dtype and
// int64 `target` of the leading shape. A scalar int64 tensor on their device. Entries of kIgnoredTarget are
// never right. Shapes are not compared: others are broadcast, or are an exception of libtorch.
at::Tensor count_correct(const at::Tensor& logits, const at::Tensor& target);

struct OutputLoss;

// What training minimises: any function of (output, target) or, where there may be several of each, of
// (const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& targets). It returns
// - a tensor with one element: the mean over the samples of the batch, each of which counts once; or
// - a Loss with its sum, which says how many predictions it is the mean of: those of count_predictions(the
//   first target).
// It is called on the thread that trains, or on several at a time by a strategy with several replicas in a
// process.
class LossFunction {
  using Tensors = std::vector<at::Tensor>;

 public:
  // Takes any function as described above.
  template <class Function>
  requires(!std::same_as<std::remove_cvref_t<Function>, LossFunction>)
      LossFunction(Function function) {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_same_v<Function, Loss (*)(const at::Tensor&, const at::Tensor&)>)
      is_cross_entropy_ = function == &cross_entropy;
    if constexpr (std::is_invocable_v<Function&, const Tensors&, const Tensors&>) {
      take(std::move(function));
    } else {
      take([function](const Tensors& outputs, const Tensors& targets) mutable {
        check_single(outputs.size(), targets.size());
        return function(outputs.front(), targets.front());
      });
    }
  }

  // Of a batch of `samples` samples; 0 gives a loss of 0 that gradients of zero flow from. Throws UsageError
  // when the function returns no scalar, a Loss without its sum, or, of outputs that require a gradient where
  // gradients are recorded, a mean that requires none; and when it has no use for so many outputs or targets.
  Loss operator()(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& targets,
                  std::int64_t samples) const;
  // Loss::predictions of such a batch, before there are outputs.
  std::int64_t predictions(const std::vector<at::Tensor>& targets, std::int64_t samples) const;
  // The same loss where every rank of `group` has a part of the first output's classes, its last dimension,
  // in rank order. Of cross_entropy no rank ever has the whole output; for any other loss it is gathered.
  LossFunction of_divided_classes(const Group& group) const;
  // Whether the function returns a Loss.
  bool counts_predictions() const { return static_cast<bool>(counted_); }

 private:
  friend LossFunction make_loss(const std::string& name);
  friend LossFunction joint_loss(std::vector<OutputLoss> losses);
  template <class Function>
  void take(Function function) {
    if constexpr (std::same_as<std::invoke_result_t<Function&, const Tensors&, const Tensors&>, Loss>) {
      counted_ = std::move(function);
    } else {
      mean_ = std::move(function);
    }
  }
  static void check_single(std::size_t outputs, std::size_t targets);
  // The same, with or without a gradient: a part of a joint loss may be a constant.
  Loss compute(const Tensors& outputs, const Tensors& targets, std::int64_t samples) const;

  // One of the two.
  std::function<Loss(const Tensors&, const Tensors&)> counted_;
  std::function<at::Tensor(const Tensors&, const Tensors&)> mean_;
  bool is_cross_entropy_ = false;
  bool is_of_elements_ = false;  // every element of the target counts, whatever its value
};

// cross_entropy (class logits, int64 targets), nll (log-probabilities, int64 targets), and of outputs and
// targets of one shape the means over all elements: mse, l1, smooth_l1, bce_with_logits (targets from 0 to
// 1). Throws UsageError for another name.
LossFunction make_loss(const std::string& name);
// Sorted.
std::vector<std::string> loss_names();

// What predictions count in weighted_loss().
struct LossWeights {
  std::vector<double> classes = {};  // cross_entropy, nll: of each class; empty is 1
  bool samples = false;  // the batch's last target is [samples], any number: what each sample counts
};

// The loss of make_loss(name) with weights: the mean over samples of a sample's weight times the mean over
// its elements of class weight times loss. It is divided by the number of samples and not by the sum of
// weights, so that it does not depend on how samples are spread over batches and ranks; ignored targets count
// as elements of loss 0. Throws UsageError for another name, weights below 0, class weights of a loss without
// classes.
LossFunction weighted_loss(const std::string& name, const LossWeights& weights);

// The loss of one output of a model with several.
struct OutputLoss {
  LossFunction loss = cross_entropy;  // of output i and target i
  double weight = 1;                  // in the sum
};
// The weighted sum of losses of the outputs, each a mean over the samples of the batch; ignored targets count
// as elements of loss 0. Throws UsageError, when it is called, for another number of outputs or targets.
LossFunction joint_loss(std::vector<OutputLoss> losses);

}  // namespace rondo
