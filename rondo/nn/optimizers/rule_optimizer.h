#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "rondo/nn/optimizers/norm_sum.h"

namespace rondo {

// Options of the optimizers in this folder; each rule reads its own.
struct RuleOptions : torch::optim::OptimizerCloneableOptions<RuleOptions> {
  using Betas = std::tuple<double, double>;
  explicit RuleOptions(double rate = 1e-3) : lr_(rate) {}
  TORCH_ARG(double, lr);
  TORCH_ARG(Betas, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, momentum) = 0;
  TORCH_ARG(double, trust) = 1e-3;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr(); }
  void set_lr(double rate) override { lr(rate); }
};

// Optimizer state of a parameter; a moment that a rule does not use stays undefined.
struct RuleState : torch::optim::OptimizerCloneableParamState<RuleState> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(at::Tensor, exp_avg);
  TORCH_ARG(at::Tensor, exp_avg_sq);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

// An optimizer that applies one rule to each parameter, its gradient and its state.
class RuleOptimizer : public torch::optim::Optimizer {
 public:
  RuleOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups, const RuleOptions& options);
  // Throws UsageError for a sparse gradient.
  at::Tensor step(LossClosure closure = nullptr) final;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  // A parameter in a step. Without a gradient `gradient` is undefined and `state` is null.
  struct Part {
    at::Tensor parameter, gradient;
    const RuleOptions* options;
    RuleState* state;
  };
  // Updates the parameters that have gradients. `parts` are all parameters, in the order of the groups. No
  // gradients are recorded.
  virtual void apply(const std::vector<Part>& parts) = 0;
  // Returns `moment` of a state, initialised to zeros like `parameter` at the first call.
  static at::Tensor& made(at::Tensor& moment, const at::Tensor& parameter);
};

// Returns the sum of the squares of all elements, or of the absolute values of complex elements, as one
// float64 on the CPU. Any floating-point or complex dtype; any thread.
at::Tensor squared_norm(const at::Tensor& tensor);

// An optimizer whose rule compares the norm of a whole parameter with that of its update.
class WholeNormOptimizer : public RuleOptimizer {
 public:
  using RuleOptimizer::RuleOptimizer;
  // Call before the first step, if this rank has shards. Without it every parameter is local and complete.
  void set_norm_sum(NormSum sum) { sum_ = std::move(sum); }

 protected:
  // Norms of each part's parameter and of `directions[i]`; 0 if that is undefined. Collective if
  // set_norm_sum() was called.
  struct Norms {
    double parameter = 0, direction = 0;
  };
  std::vector<Norms> norms(const std::vector<Part>& parts, const std::vector<at::Tensor>& directions) const;

 private:
  NormSum sum_;
};

// LAMB (You et al., "Large Batch Optimization for Deep Learning", 2020): Adam's direction plus the decayed
// weights, scaled to the parameter's norm. The ratio of norms is 1 if the parameter or the direction has norm
// 0.
class Lamb final : public WholeNormOptimizer {
 public:
  using WholeNormOptimizer::WholeNormOptimizer;

 protected:
  void apply(const std::vector<Part>& parts) override;
};

// LARS (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017): gradient and decay
// of a parameter are scaled by trust * |w| / (|g| + weight_decay * |w| + eps), then momentum applies. The
// scale is 1 if a norm is 0.
class Lars final : public WholeNormOptimizer {
 public:
  using WholeNormOptimizer::WholeNormOptimizer;

 protected:
  void apply(const std::vector<Part>& parts) override;
};

// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): updates every element by the
// sign of a mean of gradients. Weight decay is decoupled.
class Lion final : public RuleOptimizer {
 public:
  using RuleOptimizer::RuleOptimizer;

 protected:
  void apply(const std::vector<Part>& parts) override;
};

}  // namespace rondo
