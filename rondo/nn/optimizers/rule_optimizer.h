#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include "rondo/nn/optimizers/norm_sum.h"

namespace rondo {

// Figures of the optimizers in this folder; each takes what concerns it.
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

// What they remember of a parameter; a moment that a rule does not use stays undefined.
struct RuleState : torch::optim::OptimizerCloneableParamState<RuleState> {
  TORCH_ARG(std::int64_t, step) = 0;
  TORCH_ARG(at::Tensor, exp_avg);
  TORCH_ARG(at::Tensor, exp_avg_sq);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

// An optimizer that is one rule for a parameter, its gradient and what it remembers.
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
  // Moves the parameters that have gradients. Gets all of them, in the order of the groups. No gradients are
  // recorded.
  virtual void apply(const std::vector<Part>& parts) = 0;
  // `moment` of a state, zeros like `parameter` the first time.
  static at::Tensor& made(at::Tensor& moment, const at::Tensor& parameter);
};

// The sum of the squares of all elements, of complex numbers of their absolute values, as one float64 on the
// CPU. Any dtype with a point; any thread.
at::Tensor squared_norm(const at::Tensor& tensor);

// An optimizer whose rule compares the norm of a whole parameter with that of its update.
class WholeNormOptimizer : public RuleOptimizer {
 public:
  using RuleOptimizer::RuleOptimizer;
  // Before the first step; without it every parameter is here as a whole.
  void set_norm_sum(NormSum sum) { sum_ = std::move(sum); }

 protected:
  // For each part the norms of its parameter and of `directions[i]`; 0 where that is undefined. Collective
  // where set_norm_sum() was called.
  struct Norms {
    double parameter = 0, direction = 0;
  };
  std::vector<Norms> norms(const std::vector<Part>& parts, const std::vector<at::Tensor>& directions) const;

 private:
  NormSum sum_;
};

// LAMB (You et al., "Large Batch Optimization for Deep Learning", 2020): Adam's direction plus the decayed
// weights, with the length of the parameter's own norm. A parameter or direction of norm 0 counts as 1 to 1.
class Lamb final : public WholeNormOptimizer {
 public:
  using WholeNormOptimizer::WholeNormOptimizer;

 protected:
  void apply(const std::vector<Part>& parts) override;
};

// LARS (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017): gradient and decay
// of a parameter get the rate trust * |w| / (|g| + weight_decay * |w| + eps), then momentum. With a norm of 0
// that rate is 1.
class Lars final : public WholeNormOptimizer {
 public:
  using WholeNormOptimizer::WholeNormOptimizer;

 protected:
  void apply(const std::vector<Part>& parts) override;
};

// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023): moves every element by the sign
// of a mean of gradients. Weight decay is decoupled.
class Lion final : public RuleOptimizer {
 public:
  using RuleOptimizer::RuleOptimizer;

 protected:
  void apply(const std::vector<Part>& parts) override;
};

}  // namespace rondo
