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
  std::int64_t width = 512;       // width of tokens
  std::int64_t inner = 2048;      // inner width of an expert
  std::int64_t experts = 8;       // number of experts of the layer, on all ranks together
  std::int64_t per_token = 1;     // experts for each token: 1 (Switch) or 2 (GShard)
  double capacity_factor = 1.25;  // capacity_factor of RoutingOptions; 0: no token is dropped
  double balance_loss = 0.01;     // factor of the auxiliary load-balancing loss; 0: none
};

// Ranks over which the experts of a layer are distributed.
struct ExpertGroups {
  // Rank i of n has experts [i * experts / n, (i + 1) * experts / n).
  Group experts = {};
  // All ranks whose gradients are averaged; the balance loss covers all their tokens. It must not be used for
  // anything else, so that its messages do not interleave with gradients. It contains the members of
  // `experts`, in their order.
  Group all = {};
};

// The weights of a layer's experts: two linear layers each, with GELU (tanh form) between. One tensor
// [experts, out, in] holds a weight of all experts.
class ExpertWeightsImpl : public torch::nn::Module, public ParallelLayer {
 public:
  // Initialises as nn::Linear does.
  explicit ExpertWeightsImpl(const ExpertsConfig& config);
  // Applies expert i to the next counts[i] rows of `rows` [sum of counts, width].
  at::Tensor forward(const at::Tensor& rows, const std::vector<std::int64_t>& counts);
  // Divides each expert's inner width among the ranks (style column).
  void divide(ParallelStyle style, Division& division, const std::string& path) override;
  // Returns whether this rank counts tokens: one of the ranks that divide each expert, which all see the same
  // tokens.
  bool counts_tokens() const { return !tensor_.member() || tensor_.rank() == 0; }

 private:
  Group tensor_;  // ranks that divide each expert
  // Parameters live in submodules, so that their names are up.weight, up.bias, down.weight, down.bias.
  std::shared_ptr<torch::nn::Module> up_, down_;
};
TORCH_MODULE(ExpertWeights);

// Mixture of experts (GShard, Lepikhin et al., 2020; Switch Transformers, Fedus et al., 2021). A router
// assigns each token to one or two experts, which are two-layer perceptrons. The output is the sum of the
// experts' outputs, weighted by the router's probabilities. Tokens beyond an expert's capacity are dropped:
// that expert adds nothing to them.
//
// Capacity is counted in groups (GShard): each sample is a group, or all of an input without samples. So
// dropping does not depend on how samples are distributed over ranks or micro-batches. Ranks that divide a
// sequence exchange their probabilities and route whole samples.
//
// The auxiliary loss is balance_loss * experts * sum_i f_i P_i over the tokens of a forward pass on all
// ranks. f_i is the fraction of tokens whose first choice is expert i, P_i the mean of its probability. The
// loss is not part of the output: its gradient joins the backward pass, scaled by SampleInfo::loss_scale.
//
// One process has all experts. After spread() each rank has its own experts and tokens move by all_to_all. An
// expert's weights then get the mean of the gradients of all ranks in the group, weighted by
// SampleInfo::weight: the same as in one process with the joint batch.
class MixtureOfExpertsImpl : public torch::nn::Module, public CountsFigures {
 public:
  // Throws UsageError for invalid sizes.
  explicit MixtureOfExpertsImpl(const ExpertsConfig& config);

  // Maps [tokens, width] or [samples, length, width] to the same shape. Collective if experts are
  // distributed, and so is its backward pass. Router and choices are computed in float32.
  at::Tensor forward(const at::Tensor& input);

  const ExpertsConfig& config() const { return config_; }  // configuration of the layer

  // Keeps only this rank's experts: the parameters of experts() get fewer rows, in memory of their own. All
  // ranks of `groups` call it with the same values, before an optimizer is constructed. Throws UsageError if
  // the number of ranks does not divide the number of experts, naming both, and for a second call.
  void spread(ExpertGroups groups);
  // Declares that inputs are this rank's pieces of sequences that the ranks of `group` divide
  // (own_sequence()): [samples, own length, width]. forward() is then collective over `group` too. Call it
  // before the first pass.
  void divide_context(const Group& group) { context_ = group; }
  bool is_spread() const { return groups_.experts.member(); }  // whether spread() was called
  const ExpertGroups& groups() const { return groups_; }       // arguments of spread()
  // Returns the module with the parameters whose first dimension is the expert. After spread() they hold this
  // rank's experts.
  torch::nn::Module& experts() { return *experts_; }
  std::int64_t first_expert() const;  // first expert of this rank
  // Returns the number of this rank's experts.
  std::int64_t local_experts() const { return config_.experts / (is_spread() ? groups_.experts.size() : 1); }

  // With `gathered`, forward() computes with all experts without communication; the parameters must then hold
  // all experts. For distributed experts.
  void set_gathered(bool gathered) { gathered_ = gathered; }

  // Adds sums over layers: "routed_tokens", this rank's tokens times per_token, and "dropped_tokens", those
  // beyond capacity. Adds "balance_loss", the mean of the layers' auxiliary losses.
  void take_figures(StepFigures& figures) override;

 private:
  // Values that ranks exchange in a forward pass.
  struct Pass {
    std::vector<std::vector<std::int64_t>> rows;  // by rank of groups_.experts and expert
    at::Tensor first_choices;                     // fraction of all tokens by expert, float
    double weight = 1;  // this rank's share of the gradients of groups_.experts; shares add up to 1
  };
  bool exchanges() const { return is_spread() && !gathered_; }
  // Routes this rank's tokens, `length` of each sample; capacity and first choices are those of whole
  // samples.
  Routing route_own(const at::Tensor& probabilities, std::int64_t length) const;
  Pass agree(const Routing& routing, const at::Tensor& like) const;
  at::Tensor run_experts(const at::Tensor& rows, const Routing& routing, const Pass& pass);
  at::Tensor with_balance_loss(const at::Tensor& output, const at::Tensor& probabilities, const Pass& pass);

  ExpertsConfig config_;
  nn::Linear router_{nullptr};
  ExpertWeights experts_{nullptr};
  ExpertGroups groups_;
  Group context_;  // ranks that divide sequences
  bool gathered_ = false;
  struct Counted {
    double routed = 0, dropped = 0;
    StepFigure balance = {};
  };
  Counted counted_;  // counts since the last take_figures()
};
TORCH_MODULE(MixtureOfExperts);

// Returns the layers in `model`, in order of registration.
std::vector<MixtureOfExpertsImpl*> expert_layers(const torch::nn::Module& model);

}  // namespace rondo
