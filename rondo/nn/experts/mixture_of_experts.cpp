#include "rondo/nn/experts/mixture_of_experts.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/init.h>
#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/activation_checkpoint.h"
#include "rondo/nn/experts/routing.h"
#include "rondo/nn/gelu.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/parallel_communication.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/tensor_parallel/ring_attention.h"

namespace rondo {
namespace {

void check_experts(const ExpertsConfig& config) {
  const auto positive = [](const char* what, std::int64_t value) {
    if (value < 1) throw UsageError(str("mixture of experts: ", what, " is ", value, ", expected 1 or more"));
  };
  positive("width", config.width);
  positive("inner", config.inner);
  positive("experts", config.experts);
  if (config.per_token != 1 && config.per_token != 2) {
    throw UsageError(
        str("mixture of experts: a token goes to ", config.per_token, " experts, expected 1 or 2"));
  }
  if (config.per_token > config.experts) {
    throw UsageError(str("mixture of experts: a token goes to ", config.per_token, " experts, but there is ",
                         config.experts));
  }
  if (!(config.capacity_factor >= 0) || !std::isfinite(config.capacity_factor))
    throw UsageError(str("mixture of experts: the capacity factor is ", config.capacity_factor,
                         ", expected 0 (no limit) or more"));
  if (!(config.balance_loss >= 0) || !std::isfinite(config.balance_loss))
    throw UsageError(str("mixture of experts: the factor of the balance loss is ", config.balance_loss,
                         ", expected 0 or more"));
}

// Reorders pieces of `rows`, sizes[a][b] rows each, from order (a, b) to order (b, a).
at::Tensor swap_order(const at::Tensor& rows, const std::vector<std::vector<std::int64_t>>& sizes) {
  if (sizes.size() < 2 || sizes.front().size() < 2) return rows;
  std::vector<std::int64_t> flat;
  for (const auto& row : sizes) flat.insert(flat.end(), row.begin(), row.end());
  const std::vector<at::Tensor> pieces = rows.split_with_sizes(flat);
  std::vector<at::Tensor> ordered;
  const std::size_t inner = sizes.front().size();
  for (std::size_t b = 0; b < inner; ++b) {
    for (std::size_t a = 0; a < sizes.size(); ++a) ordered.push_back(pieces[a * inner + b]);
  }
  return at::cat(ordered);
}

template <class Matrix>
Matrix transposed(const Matrix& matrix) {
  Matrix result(matrix.front().size());
  for (const auto& row : matrix) {
    for (std::size_t i = 0; i < row.size(); ++i) result[i].push_back(row[i]);
  }
  return result;
}

std::int64_t sum_of(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

}  // namespace

ExpertWeightsImpl::ExpertWeightsImpl(const ExpertsConfig& config) {
  const auto linear = [&](const char* name, std::int64_t out, std::int64_t in) {
    auto module = register_module(name, std::make_shared<torch::nn::Module>(name));
    // A copy of the handle: registering the next parameter moves the stored one.
    const at::Tensor weight = module->register_parameter("weight", at::empty({config.experts, out, in}));
    const at::Tensor bias = module->register_parameter("bias", at::empty({config.experts, out}));
    // nn::Linear's initialisation.
    const double bound = 1.0 / std::sqrt(static_cast<double>(in));
    torch::nn::init::uniform_(weight, -bound, bound);
    torch::nn::init::uniform_(bias, -bound, bound);
    return module;
  };
  up_ = linear("up", config.inner, config.width);
  down_ = linear("down", config.width, config.inner);
}

void ExpertWeightsImpl::divide(ParallelStyle style, Division& division, const std::string& path) {
  if (style != ParallelStyle::column) {
    throw UsageError(
        str("'", path, "' are experts, which have no style ", to_text(style), "; they have column"));
  }
  at::Tensor up = up_->named_parameters()["weight"], down = down_->named_parameters()["weight"];
  division.share(up.size(1), path, "inner features");
  division.cut(up, 1, path + ".up");
  at::Tensor up_bias = up_->named_parameters()["bias"];
  division.cut(up_bias, 1, path + ".up");
  division.cut(down, 2, path + ".down");
  tensor_ = division.group();
}

at::Tensor ExpertWeightsImpl::forward(const at::Tensor& rows, const std::vector<std::int64_t>& counts) {
  const bool divided = has_peers(tensor_);
  const auto of_experts = [](torch::nn::Module& linear, const char* name) {
    return linear.named_parameters()[name].unbind(0);
  };
  const auto up = of_experts(*up_, "weight"), up_bias = of_experts(*up_, "bias");
  const auto down = of_experts(*down_, "weight"), down_bias = of_experts(*down_, "bias");
  const std::vector<at::Tensor> inputs = copy_to_ranks(rows, tensor_).split_with_sizes(counts);
  std::vector<at::Tensor> outputs, biases;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    // Skips experts without tokens, but not the last one if all are: all parameters must get a gradient.
    if (counts[i] == 0 && (i + 1 < inputs.size() || !outputs.empty())) continue;
    const at::Tensor inner = nn::gelu_tanh(at::linear(inputs[i], up[i], up_bias[i]));
    outputs.push_back(at::linear(inner, down[i], divided ? at::Tensor() : down_bias[i]));
    if (divided) biases.push_back(down_bias[i].expand_as(outputs.back()));
  }
  // Adds the bias once, not on every rank.
  return divided ? sum_over_ranks(at::cat(outputs), tensor_) + at::cat(biases) : at::cat(outputs);
}

MixtureOfExpertsImpl::MixtureOfExpertsImpl(const ExpertsConfig& config) : config_(config) {
  check_experts(config);
  router_ = register_module("router",
                            nn::Linear(torch::nn::LinearOptions(config.width, config.experts).bias(false)));
  experts_ = register_module("experts", ExpertWeights(config));
}

std::int64_t MixtureOfExpertsImpl::first_expert() const {
  return is_spread() ? groups_.experts.rank() * local_experts() : 0;
}

void MixtureOfExpertsImpl::spread(ExpertGroups groups) {
  if (is_spread()) throw UsageError("the experts of this layer are spread over ranks already");
  const int ranks = groups.experts.size();
  if (config_.experts % ranks != 0) {
    throw UsageError(str(config_.experts, " experts do not divide among ", ranks, " ranks of group '",
                         groups.experts.name(), "'"));
  }
  groups_ = std::move(groups);
  const at::NoGradGuard no_gradient;
  for (at::Tensor& parameter : experts_->parameters())
    parameter.set_data(parameter.detach().narrow(0, first_expert(), local_experts()).clone());
}

Routing MixtureOfExpertsImpl::route_own(const at::Tensor& probabilities, std::int64_t length) const {
  const RoutingOptions options{.per_token = config_.per_token, .capacity_factor = config_.capacity_factor};
  const std::int64_t samples = probabilities.size(0) / length;
  // Ranks that divide sequences have the same samples, so either all or none of them have samples.
  if (!has_peers(context_) || samples == 0) return route(probabilities, length, options);
  const at::Tensor whole =
      whole_sequence(probabilities.view({samples, length, config_.experts}), 1, context_);
  const std::int64_t tokens = samples * whole.size(1);
  const Routing all = route(whole.reshape({tokens, config_.experts}), whole.size(1), options);
  const at::Tensor numbers = at::arange(tokens, all.taken.options()).view({samples, whole.size(1)});
  return part_of_routing(all, tokens, own_sequence(numbers, 1, context_).flatten());
}

MixtureOfExpertsImpl::Pass MixtureOfExpertsImpl::agree(const Routing& routing, const at::Tensor& like) const {
  const auto experts = static_cast<std::size_t>(config_.experts);
  std::vector<std::int64_t> first_choices = routing.first_choices;
  Pass pass;
  if (!exchanges()) {
    pass.rows = {routing.rows};
  } else {
    const std::shared_ptr<const SampleInfo> info = SampleScope::current();
    // Rows for each expert, first choices of each expert, and the weight.
    std::vector<std::int64_t> mine = routing.rows;
    mine.insert(mine.end(), first_choices.begin(), first_choices.end());
    mine.push_back(std::bit_cast<std::int64_t>(info ? info->weight : 1.0));
    const at::Tensor told = torch::tensor(mine, at::kLong).to(groups_.all.traits().control_device());
    std::fill(first_choices.begin(), first_choices.end(), 0);
    double weights = 0, own = 0;
    const std::vector<int>& members = groups_.experts.ranks();
    const std::vector<at::Tensor> of_ranks = all_gather(told, groups_.all);
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
      const at::Tensor table = of_ranks[rank].cpu();
      const auto* numbers = table.const_data_ptr<std::int64_t>();
      for (std::size_t i = 0; i < experts; ++i) first_choices[i] += numbers[experts + i];
      if (std::find(members.begin(), members.end(), groups_.all.ranks()[rank]) == members.end()) continue;
      pass.rows.emplace_back(numbers, numbers + experts);
      const auto weight = std::bit_cast<double>(numbers[2 * experts]);
      weights += weight;
      if (static_cast<int>(rank) == groups_.all.rank()) own = weight;
    }
    pass.weight = weights > 0 ? own / weights : 0;
  }
  const double tokens = std::max(1.0, static_cast<double>(sum_of(first_choices)));
  std::vector<double> fractions;
  for (const std::int64_t count : first_choices) fractions.push_back(static_cast<double>(count) / tokens);
  pass.first_choices = torch::tensor(fractions, at::kDouble).to(like.device(), like.scalar_type());
  return pass;
}

// Sends rows of this rank's tokens, ordered by expert, to the ranks of the experts, and returns the experts'
// outputs.
at::Tensor MixtureOfExpertsImpl::run_experts(const at::Tensor& rows, const Routing& routing,
                                             const Pass& pass) {
  if (!exchanges()) return experts_->forward(rows, routing.rows);
  const auto local = static_cast<std::size_t>(local_experts());
  const auto first = static_cast<std::size_t>(first_expert());
  std::vector<std::int64_t> sent, received;
  for (std::size_t rank = 0; rank < pass.rows.size(); ++rank) {
    const auto begin = routing.rows.begin() + static_cast<std::ptrdiff_t>(rank * local);
    sent.push_back(sum_of({begin, begin + static_cast<std::ptrdiff_t>(local)}));
  }
  std::vector<std::vector<std::int64_t>> by_source;  // rows from each rank for each local expert
  for (const std::vector<std::int64_t>& of_rank : pass.rows) {
    const auto begin = of_rank.begin() + static_cast<std::ptrdiff_t>(first);
    by_source.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(local));
    received.push_back(sum_of(by_source.back()));
  }
  const std::vector<std::vector<std::int64_t>> by_expert = transposed(by_source);
  std::vector<std::int64_t> counts;
  for (const std::vector<std::int64_t>& of_expert : by_expert) counts.push_back(sum_of(of_expert));
  // At the experts gradients are weighted by their rank's share; outside they are not.
  const double back = pass.weight > 0 ? 1 / pass.weight : 0;
  const at::Tensor arrived = exchange_rows(scale_gradient(rows, back), sent, received, groups_.experts);
  const at::Tensor made = experts_->forward(swap_order(arrived, by_source), counts);
  return scale_gradient(exchange_rows(swap_order(made, by_expert), received, sent, groups_.experts),
                        pass.weight);
}

at::Tensor MixtureOfExpertsImpl::with_balance_loss(const at::Tensor& output, const at::Tensor& probabilities,
                                                   const Pass& pass) {
  // The mean is 0 without tokens.
  const at::Tensor mean =
      probabilities.sum(0) / static_cast<double>(std::max<std::int64_t>(1, probabilities.size(0)));
  const at::Tensor balance = (mean * pass.first_choices).sum() * static_cast<double>(config_.experts);
  if (!recomputing() && experts_->counts_tokens()) {
    const auto tokens = static_cast<double>(probabilities.size(0));
    counted_.balance += {.sum = config_.balance_loss * balance.item<double>() * tokens, .weight = tokens};
  }
  if (config_.balance_loss == 0 || !balance.requires_grad()) return output;
  const std::shared_ptr<const SampleInfo> info = SampleScope::current();
  return with_auxiliary_loss(output, balance, config_.balance_loss * (info ? info->loss_scale : 1.0));
}

at::Tensor MixtureOfExpertsImpl::forward(const at::Tensor& input) {
  const bool has_samples = input.dim() == 3;
  if ((!has_samples && (input.dim() != 2 || has_peers(context_))) || input.size(-1) != config_.width) {
    throw UsageError(str("mixture of experts: input of shape [", join(input.sizes(), ", "), "], expected ",
                         has_peers(context_) ? "" : str("[tokens, ", config_.width, "] or "),
                         "[samples, length, ", config_.width, "]"));
  }
  const std::int64_t count = input.numel() / config_.width;
  const at::Tensor tokens = input.reshape({count, config_.width});
  at::Tensor probabilities;
  {
    // Computes in float32 at least, because small differences decide (Switch's selective precision).
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::ScalarType dtype = at::promoteTypes(tokens.scalar_type(), at::kFloat);
    const at::Tensor logits = at::linear(tokens.to(dtype), router_->weight.to(dtype));
    probabilities = at::softmax(logits, 1);
  }
  const std::int64_t group_size = std::max<std::int64_t>(1, input.size(-2));
  const Routing routing = route_own(probabilities.detach(), group_size);
  const Pass pass = agree(routing, probabilities);
  const at::Tensor token_of = count > 0 ? routing.taken.remainder(count) : routing.taken;
  const at::Tensor made = run_experts(tokens.index_select(0, token_of), routing, pass);
  // One slot for each choice, so that outputs of a token's experts are added in a fixed order.
  const at::Tensor placed = at::zeros({routing.choices, config_.width}, made.options().requires_grad(false))
                                .index_copy(0, routing.taken, made);
  const at::Tensor gates = gates_of(probabilities, config_.per_token).to(made.scalar_type());
  at::Tensor output = (placed * gates.unsqueeze(1)).view({config_.per_token, count, config_.width}).sum(0);
  if (is_training()) {
    if (!recomputing() && experts_->counts_tokens()) {
      counted_.routed += static_cast<double>(routing.choices);
      counted_.dropped += static_cast<double>(routing.choices - sum_of(routing.rows));
    }
    output = with_balance_loss(output, probabilities, pass);
  }
  return output.view(input.sizes());
}

void MixtureOfExpertsImpl::take_figures(StepFigures& figures) {
  figures["routed_tokens"] += {.sum = std::exchange(counted_.routed, 0)};
  figures["dropped_tokens"] += {.sum = std::exchange(counted_.dropped, 0)};
  figures["balance_loss"] += std::exchange(counted_.balance, {});
}

std::vector<MixtureOfExpertsImpl*> expert_layers(const torch::nn::Module& model) {
  std::vector<MixtureOfExpertsImpl*> layers;
  for (const auto& [name, module] : modules_of(model)) {
    if (auto* const layer = dynamic_cast<MixtureOfExpertsImpl*>(module)) layers.push_back(layer);
  }
  return layers;
}

}  // namespace rondo
