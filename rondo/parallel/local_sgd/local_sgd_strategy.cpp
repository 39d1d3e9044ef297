#include "rondo/parallel/local_sgd/local_sgd_strategy.h"

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/gradients/model_agreement.h"

namespace rondo {
namespace {

constexpr std::int64_t kGradientBytes = 25 << 20;  // per all-reduce, like ddp's buckets
constexpr const char* kSteps = "steps";

std::vector<std::string> option_lines(const LocalSgdOptions& options) {
  std::vector<std::string> lines = {"strategy = local_sgd"};
  const OptionTable table = LocalSgdStrategyFactory::declarations().front().options;
  for (const Option& option : table.options())
    lines.push_back(str(option.name, " = ", option.text(&options).value_or("none")));
  return lines;
}

std::vector<at::Tensor> parameters_of(const ModelTensors& tensors) {
  std::vector<at::Tensor> parameters;
  for (const ModelTensor& parameter : tensors.parameters) parameters.push_back(parameter.tensor);
  return parameters;
}

// Returns the module's tensors, with rank 0's values on all ranks.
ModelTensors agreed_tensors(const torch::nn::Module& module, const Group& group,
                            const LocalSgdOptions& options) {
  ModelTensors tensors = without_repetitions(tensors_of(module));
  if (group.size() == 1) return tensors;
  verify_same_model(tensors, option_lines(options), group);
  broadcast_coalesced(tensors.all_tensors(), group, /*root=*/0);
  return tensors;
}

}  // namespace

LocalSgdModel::LocalSgdModel(std::shared_ptr<torch::nn::Module> module, const Group& group,
                             const LocalSgdOptions& options)
    : module_(std::move(module)),
      group_(group),
      options_(options),
      tensors_(agreed_tensors(*module_, group_, options_)),
      average_(parameters_of(tensors_), tensors_.buffer_tensors(), group_, options_),
      announcement_(group_) {}

void LocalSgdModel::start_pass(const LocalBatch& batch) {
  finish_step();
  if (!own_.empty()) average_.assign(std::exchange(own_, {}));
  batch_ = batch;
  if (batch.synchronise) announcement_.offer({.samples = batch.samples});
}

void LocalSgdModel::announce(const StepTotals& mine) {
  mine_ = mine;
  if (group_.size() > 1 && ranks_meet()) announcement_.start({.samples = batch_.samples, .totals = mine});
}

void LocalSgdModel::finish_pass() {
  if (!batch_.synchronise) return;
  if (synchronous()) combine_gradients();
  step_is_open_ = true;
}

// Computes the mean over the samples of all ranks, like every synchronous strategy.
void LocalSgdModel::combine_gradients() {
  if (group_.size() == 1) return;
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> trained, gradients;
  std::vector<float> used;  // whether each parameter was used on this rank
  std::int64_t bytes = 0;
  for (const at::Tensor& parameter : parameters_of(tensors_)) {
    if (!parameter.requires_grad()) continue;
    used.push_back(parameter.grad().defined() ? 1 : 0);
    if (!parameter.grad().defined()) parameter.mutable_grad() = torch::zeros_like(parameter);
    if (parameter.grad().is_sparse()) {
      throw UsageError(str("strategy local_sgd averages dense gradients in its synchronous steps; make the ",
                           "embedding's gradient dense (sparse = false), or train without such steps"));
    }
    trained.push_back(parameter);
    gradients.push_back(parameter.grad());
    bytes += static_cast<std::int64_t>(parameter.grad().nbytes());
  }
  if (trained.empty()) return;
  // Flags for the parameters that any rank has used are reduced together with the last gradients.
  at::Tensor used_by_any = torch::tensor(used).to(gradients.back().options());
  gradients.push_back(used_by_any);
  announcement_.ensure_started();
  const double share = announcement_.gradient_weight(/*divide_by_active=*/false).scale;
  for (const Fragment& bucket : cut_into_fragments(gradients, divide_rounding_up(bytes, kGradientBytes), 0)) {
    at::Tensor sum = bucket.flat().mul_(share);
    all_reduce(sum, group_);
    bucket.assign(sum);
  }
  // A parameter that no rank has used keeps no gradient, so the optimizer skips it.
  used_by_any = used_by_any.to(at::kCPU, at::kFloat);
  for (std::size_t i = 0; i < trained.size(); ++i) {
    if (used_by_any[static_cast<std::int64_t>(i)].item<float>() == 0) trained[i].mutable_grad().reset();
  }
}

// A rank without data has the gradient of samples that do not count, so its replica is not updated.
void LocalSgdModel::apply_step(torch::optim::Optimizer& optimizer) {
  if (synchronous() || batch_.samples > 0) optimizer.step();
}

StepTotals LocalSgdModel::totals() {
  finish_step();
  return totals_;
}

void LocalSgdModel::finish_step() {
  if (!std::exchange(step_is_open_, false)) return;
  const bool was_synchronous = synchronous(), met = ranks_meet();
  ++steps_;
  const std::int64_t local_steps = steps_ - options_.synchronous_steps;
  if (local_steps == 0) average_.restart();
  if (!was_synchronous) average_.after_step(local_steps);
  if (met && group_.size() > 1) {
    totals_ = announcement_.totals();
  } else {
    totals_ = mine_;
    totals_.stop = met && mine_.stop;
  }
  announcement_.clear();
}

void LocalSgdModel::show_mean() {
  finish_step();
  if (!own_.empty() || steps_ == 0) return;
  own_ = average_.values();
  average_.assign(average_.mean_values());
}

void LocalSgdModel::reload() {
  if (std::exchange(restored_, false)) return;
  own_.clear();
  average_.restart();
}

CommunicationState LocalSgdModel::communication_state() const {
  CommunicationState state = average_.state();
  state[kSteps] = torch::tensor({steps_}, torch::kInt64);
  const std::vector<at::Tensor> values = own_.empty() ? average_.values() : own_;
  for (std::size_t i = 0; i < values.size(); ++i) state[str("value.", i)] = values[i].clone();
  return state;
}

std::string LocalSgdModel::restore_communication(const std::vector<CommunicationState>& of_ranks) {
  const std::string anew = "local_sgd starts a new averaging period: ";
  if (of_ranks.empty() || !of_ranks.front().contains(kSteps))
    return anew + "the checkpoint is of another strategy";
  const CommunicationState& first = of_ranks.front();
  const at::Tensor& steps = first.at(kSteps);
  if (steps.scalar_type() != torch::kInt64 || steps.numel() != 1 || steps.item<std::int64_t>() < 0)
    return anew + "its number of steps is no number of steps";
  if (!average_.restore(first)) return anew + "it is of other fragments or another outer optimizer";
  restored_ = true;
  steps_ = steps.item<std::int64_t>();
  if (of_ranks.size() != static_cast<std::size_t>(group_.size())) {
    return str("ranks start from the mean of the replicas: those saved are of ", of_ranks.size(),
               " ranks, this run has ", group_.size());
  }
  const CommunicationState& mine = of_ranks[static_cast<std::size_t>(group_.rank())];
  std::vector<at::Tensor> values = average_.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto saved = mine.find(str("value.", i));
    if (saved == mine.end() || saved->second.sizes() != values[i].sizes() ||
        saved->second.scalar_type() != values[i].scalar_type()) {
      return "ranks start from the mean of the replicas: a saved one is of another model";
    }
    values[i] = saved->second.clone();
  }
  if (!average_.restore_under_way(mine))
    return "ranks start from the mean of the replicas: a saved average is of another model";
  own_ = std::move(values);
  return {};
}

CommunicationTimes LocalSgdModel::communication_times() const {
  CommunicationTimes times;
  for (const TraceSpan& span : average_.spans()) {
    times.busy += std::chrono::nanoseconds(span.end_ns - span.begin_ns);
    times.exposed += std::chrono::nanoseconds(span.exposed_ns.value_or(0));
  }
  return times;
}

LocalSgdStrategy::LocalSgdStrategy(Context context, const LocalSgdOptions& options)
    : ProcessStrategy("local_sgd", std::move(context)), options_(options) {
  const OptionTable table = LocalSgdStrategyFactory::declarations().front().options;
  for (const Option& option : table.options()) option.read(&options_, option.text(&options).value_or(""));
  if (options.sync_delay >= options.sync_period) {
    throw UsageError(str("sync-delay ", options.sync_delay,
                         ": an average must count before the next one is sent; allowed are 0 to ",
                         options.sync_period - 1, ", with --sync-period ", options.sync_period));
  }
  if (options.fragments > options.sync_period) {
    throw UsageError(str("sync-fragments ", options.fragments, ": a period of ", options.sync_period,
                         " steps has no more than as many moments"));
  }
}

std::unique_ptr<PreparedModel> LocalSgdStrategy::prepare(std::shared_ptr<torch::nn::Module> module) {
  return std::make_unique<LocalSgdModel>(std::move(module), context().world(), options_);
}

bool LocalSgdStrategy::set_mixed_precision(const MixedPrecisionPolicy&) {
  throw UsageError(
      "strategy local_sgd averages parameters, and keeps no master weights of them; use opt level O0, O1 or "
      "O3 with it, or strategy ddp");
}

std::unique_ptr<Strategy> LocalSgdStrategyFactory::make(const std::string&, const Context& context,
                                                        const LocalSgdOptions& options) {
  return std::make_unique<LocalSgdStrategy>(context, options);
}

}  // namespace rondo
