#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/experts/routing.h"
#include "rondo/nn/linear.h"
#include "rondo/nn/parallel_style.h"
#include "rondo/nn/step_figures.h"

namespace rondo {

// The size of a mixture of experts.
struct ExpertsConfig {
  std::int64_t width = 512;       // of tokens
  std::int64_t inner = 2048;      // inside an expert
  std::int64_t experts = 8;       // of the layer, on all ranks together
  std::int64_t per_token = 1;     // experts that a token goes to: 1 (Switch) or 2 (GShard)
  double capacity_factor = 1.25;  // see RoutingOptions; 0: no token is dropped
  double balance_loss = 0.01;     // factor of the auxiliary loss that spreads tokens over experts; 0: none
};

// The ranks over which the experts of a layer are spread.
struct ExpertGroups {
  // Rank i of n has experts [i * experts / n, (i + 1) * experts / n).
  Group experts = {};
  // All ranks whose gradients are averaged: the balance loss is that of all their tokens. Used for nothing
  // else, for what it carries must not meet gradients. Holds the members of `experts`, in their order.
  Group all = {};
};

// Experts side by side: two linear layers each, with GELU (tanh form) between, as the weights of all experts
// in one tensor [experts, out, in].
class ExpertWeightsImpl : public torch::nn::Module, public ParallelLayer {
 public:
  // Initialised as nn::Linear is.
  explicit ExpertWeightsImpl(const ExpertsConfig& config);
  // `rows` [sum of counts, width], counts[i] of them for expert i, one expert after the other.
  at::Tensor forward(const at::Tensor& rows, const std::vector<std::int64_t>& counts);
  // By column: every rank has a part of each expert's inner width.
  void divide(ParallelStyle style, Division& division, const std::string& path) override;
  // Of the ranks that divide each expert, and see the same tokens, one counts them: whether this does.
  bool counts_tokens() const { return !tensor_.member() || tensor_.rank() == 0; }

 private:
  Group tensor_;  // that divides each expert
  // Parameters live in submodules, so that they are called up.weight, up.bias, down.weight, down.bias.
  std::shared_ptr<torch::nn::Module> up_, down_;
};
TORCH_MODULE(ExpertWeights);

// Mixture of experts (GShard, Lepikhin et al., 2020; Switch Transformers, Fedus et al., 2021): a router gives
// each token to one or two of the experts, two-layer perceptrons, and adds up what they make of it, weighed
// by the router's probabilities. Tokens beyond an expert's capacity are dropped: that expert adds nothing to
// them.
//
// Each sample, or all of an input without samples, is a group in which capacity is counted (GShard's groups):
// so what is dropped does not depend on how samples are spread over ranks or micro-batches. Ranks that divide
// a sequence tell each other their probabilities and route whole samples.
//
// The auxiliary loss is balance_loss * experts * sum_i f_i P_i, with f_i the fraction of tokens whose first
// choice is expert i and P_i the mean of its probability, over the tokens of a forward pass on all ranks. It
// is not part of the output: its gradient joins the backward pass, by SampleInfo::loss_scale.
//
// One process has all experts. spread() leaves each rank its own; then tokens travel by all_to_all, and what
// an expert's weights get is the mean of the gradients of all ranks in the group, weighed by
// SampleInfo::weight: as much as one process would get of their joint batch.
class MixtureOfExpertsImpl : public torch::nn::Module, public CountsFigures {
 public:
  // Throws UsageError for sizes that cannot be.
  explicit MixtureOfExpertsImpl(const ExpertsConfig& config);

  // [tokens, width] or [samples, length, width] to the same shape. Collective where experts are spread, its
  // backward pass as well. Router and choices are computed in float32.
  at::Tensor forward(const at::Tensor& input);

  const ExpertsConfig& config() const { return config_; }  // what it was made of

  // Leaves this rank its experts: the parameters of experts() get fewer rows, with values of their own
  // memory. All ranks of `groups` call it with the same values. Before an optimizer is made. Throws
  // UsageError when the number of experts does not divide by the number of ranks, naming both, and for a
  // second call.
  void spread(ExpertGroups groups);
  // Inputs are the pieces of sequences that the ranks of `group` divide (own_sequence()), [samples, own
  // length, width]; forward is collective over them, too. Before the first pass.
  void divide_context(const Group& group) { context_ = group; }
  bool is_spread() const { return groups_.experts.member(); }  // whether spread() was called
  const ExpertGroups& groups() const { return groups_; }       // of spread()
  // Parameters whose first dimension is the expert. After spread() they hold this rank's.
  torch::nn::Module& experts() { return *experts_; }
  std::int64_t first_expert() const;  // of this rank
  // How many this rank has.
  std::int64_t local_experts() const { return config_.experts / (is_spread() ? groups_.experts.size() : 1); }

  // While experts are spread: with `gathered` forward computes with all experts, which the parameters must
  // then hold, and communicates with nobody.
  void set_gathered(bool gathered) { gathered_ = gathered; }

  // "routed_tokens": tokens of this rank, times per_token; "dropped_tokens": those of them beyond capacity.
  // Sums over layers. "balance_loss": the mean of the auxiliary losses of layers.
  void take_figures(StepFigures& figures) override;

 private:
  // What ranks tell each other of a forward pass.
  struct Pass {
    std::vector<std::vector<std::int64_t>> rows;  // by rank of groups_.experts and expert
    at::Tensor first_choices;                     // fraction of all tokens by expert, float
    double weight = 1;  // this rank's share in the gradients of groups_.experts; they add up to 1
  };
  bool exchanges() const { return is_spread() && !gathered_; }
  // Of this rank's tokens, `length` of a sample; capacity and first choices are those of whole samples.
  Routing route_own(const at::Tensor& probabilities, std::int64_t length) const;
  Pass agree(const Routing& routing, const at::Tensor& like) const;
  at::Tensor run_experts(const at::Tensor& rows, const Routing& routing, const Pass& pass);
  at::Tensor with_balance_loss(const at::Tensor& output, const at::Tensor& probabilities, const Pass& pass);

  ExpertsConfig config_;
  nn::Linear router_{nullptr};
  ExpertWeights experts_{nullptr};
  ExpertGroups groups_;
  Group context_;  // that divides sequences
  bool gathered_ = false;
  struct Counted {
    double routed = 0, dropped = 0;
    StepFigure balance = {};
  };
  Counted counted_;  // since take_figures()
};
TORCH_MODULE(MixtureOfExperts);

// The layers in `model`, in order of registration.
std::vector<MixtureOfExpertsImpl*> expert_layers(const torch::nn::Module& model);

}  // namespace rondo
