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

// Target value that asks for no prediction and is ignored (PyTorch's ignore_index).
inline constexpr std::int64_t kIgnoredTarget = -100;

// Returns the number of predictions that `target` asks for: entries that are not ignored for int64, all
// entries for any other dtype.
std::int64_t count_predictions(const at::Tensor& target);

// Returns the loss of `logits` [..., classes] of any float dtype for an int64 `target` of the leading shape.
// An empty batch gives a loss with zero gradients, so that a rank without samples can take part.
Loss cross_entropy(const at::Tensor& logits, const at::Tensor& target);

// Returns the number of predictions whose largest logit is the target, for `logits` [..., classes] of any
// float dtype and int64 `target` of the leading shape. A scalar int64 tensor on their device. Entries of
// kIgnoredTarget are never correct. Does not check shapes: others are broadcast, or libtorch throws.
at::Tensor count_correct(const at::Tensor& logits, const at::Tensor& target);

struct OutputLoss;

// The function that training minimises: any function of (output, target) or, for several of each, of (const
// std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& targets). It returns
// - a tensor with one element: the mean over the samples of the batch, all with the same weight; or
// - a Loss with its sum and number of predictions: count_predictions(the first target).
// It is called on the training thread. A strategy with several replicas in a process calls it on several
// threads at a time.
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

  // Returns the loss of a batch of `samples` samples; 0 samples give a loss of 0 with zero gradients. Throws
  // UsageError if the function returns no scalar or a Loss without its sum, or does not accept this number of
  // outputs or targets. Also throws if gradients are recorded, an output requires a gradient and the returned
  // mean does not.
  Loss operator()(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& targets,
                  std::int64_t samples) const;
  // Returns Loss::predictions of such a batch before its outputs exist.
  std::int64_t predictions(const std::vector<at::Tensor>& targets, std::int64_t samples) const;
  // Returns the same loss for ranks of `group` that each have a part of the first output's classes (its last
  // dimension), in rank order. For cross_entropy no rank gets the whole output; for any other loss the output
  // is gathered.
  LossFunction of_divided_classes(const Group& group) const;
  // Returns whether the function returns a Loss.
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
  // Computes the loss without requiring a gradient: a part of a joint loss may be a constant.
  Loss compute(const Tensors& outputs, const Tensors& targets, std::int64_t samples) const;

  // Exactly one of these two is set.
  std::function<Loss(const Tensors&, const Tensors&)> counted_;
  std::function<at::Tensor(const Tensors&, const Tensors&)> mean_;
  bool is_cross_entropy_ = false;
  bool is_of_elements_ = false;  // whether all elements of the target count
};

// Returns the loss `name`: cross_entropy (class logits, int64 targets), nll (log-probabilities, int64
// targets), and the means over all elements of outputs and targets of one shape: mse, l1, smooth_l1,
// bce_with_logits (targets from 0 to 1). Throws UsageError for any other name.
LossFunction make_loss(const std::string& name);
// Returns the names of make_loss(), sorted.
std::vector<std::string> loss_names();

// Weights of predictions in weighted_loss().
struct LossWeights {
  std::vector<double> classes = {};  // cross_entropy, nll: weight of each class; empty: 1
  bool samples = false;              // the batch's last target is [samples], any number: the sample weights
};

// Returns the loss of make_loss(name) with weights: the mean over samples of a sample's weight times the mean
// over its elements of class weight times loss. The divisor is the number of samples, not the sum of weights,
// so that the loss does not depend on how samples are distributed over batches and ranks. Ignored targets
// count as elements of loss 0. Throws UsageError for an unknown name, negative weights, and class weights of
// a loss without classes.
LossFunction weighted_loss(const std::string& name, const LossWeights& weights);

// The loss of one output of a model with several.
struct OutputLoss {
  LossFunction loss = cross_entropy;  // loss of output i and target i
  double weight = 1;                  // factor in the sum
};
// Returns the weighted sum of the outputs' losses, each a mean over the samples of the batch; ignored targets
// count as elements of loss 0. The loss throws UsageError for another number of outputs or targets.
LossFunction joint_loss(std::vector<OutputLoss> losses);

}  // namespace rondo
