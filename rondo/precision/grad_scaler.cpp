#include "rondo/precision/grad_scaler.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdint>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/nn/gradient_norm.h"

namespace rondo {
namespace {

at::Tensor float_scalar(double value, c10::Device device) {
  return at::full({}, value, at::TensorOptions().dtype(at::kFloat).device(device));
}

void check_options(const GradScaler::Options& options) {
  if (!(options.growth_factor > 1.0))
    throw UsageError(str("GradScaler: growth_factor ", options.growth_factor, " must be above 1"));
  if (!(options.backoff_factor > 0.0 && options.backoff_factor < 1.0)) {
    throw UsageError(str("GradScaler: backoff_factor ", options.backoff_factor, " must lie between 0 and 1"));
  }
  if (!(options.init_scale > 0.0))
    throw UsageError(str("GradScaler: init_scale ", options.init_scale, " must be above 0"));
  if (options.growth_interval < 1)
    throw UsageError(str("GradScaler: growth_interval ", options.growth_interval, " must be 1 or more"));
}

at::Tensor values_of(const at::Tensor& parameter) {
  if (parameter.grad().scalar_type() == at::kHalf) {
    throw UsageError(
        "GradScaler: float16 gradients cannot be unscaled without underflow; keep float32 master weights "
        "(opt level O2), or train float32 weights under autocast (O1)");
  }
  return gradient_values(parameter);
}

}  // namespace

GradScaler::GradScaler(const Options& options, Group group) : options_(options), group_(std::move(group)) {
  if (options_.enabled) check_options(options_);
}

void GradScaler::require_scale(const char* method) const {
  if (scale_.defined()) return;
  throw UsageError(str("GradScaler::", method,
                       " before any loss was scaled: call scale(loss).backward() in each iteration first"));
}

at::Tensor GradScaler::scale_on(c10::Device device) {
  if (!scale_.defined()) {
    scale_ = float_scalar(options_.init_scale, device);
    growth_tracker_ =
        at::full({}, initial_growth_tracker_, at::TensorOptions().dtype(at::kInt).device(device));
  }
  return scale_.to(device);
}

at::Tensor GradScaler::scale(const at::Tensor& outputs) {
  return options_.enabled ? outputs * scale_on(outputs.device()) : outputs;
}

std::vector<at::Tensor> GradScaler::scale(const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> scaled;
  for (const at::Tensor& output : outputs) scaled.push_back(scale(output));
  return scaled;
}

std::pair<bool, bool> GradScaler::unscale_gradients(torch::optim::Optimizer& optimizer) {
  // Groups gradients by device and dtype: one kernel call each.
  std::map<std::pair<std::string, at::ScalarType>, std::vector<at::Tensor>> lists;
  for (auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      const at::Tensor values = values_of(parameter);
      lists[{values.device().str(), values.scalar_type()}].push_back(values);
    }
  }
  // Computes in double: the reciprocal of a float32 scale must not round twice.
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  bool found = false;
  for (auto& [key, gradients] : lists) {
    const c10::Device device = gradients.front().device();
    at::Tensor found_inf = float_scalar(0.0, device);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inverse.to(device));
    found = found || found_inf.item<float>() > 0;
  }
  return {found, !lists.empty()};
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  require_scale("unscale_()");
  OptimizerState& state = states_[&optimizer];
  if (state.stage == Stage::unscaled)
    throw UsageError("GradScaler::unscale_() was already called for this optimizer since the last update()");
  if (state.stage == Stage::stepped)
    throw UsageError("GradScaler::unscale_() is called after step(); it belongs before");
  const torch::NoGradGuard no_gradients;
  auto [found, any] = unscale_gradients(optimizer);
  if (group_.member() && group_.size() > 1) {
    at::Tensor flags = at::tensor({found ? 1.0F : 0.0F, any ? 1.0F : 0.0F}, at::kFloat);
    flags = flags.to(group_.traits().control_device());
    all_reduce(flags, group_, ReduceOp::MAX);
    flags = flags.cpu();
    found = flags[0].item<float>() > 0;
    any = flags[1].item<float>() > 0;
  }
  if (!any) {
    states_.erase(&optimizer);
    throw UsageError(
        "GradScaler: no parameter of this optimizer has a gradient on any rank; was the backward pass of "
        "scale(loss) run, and is the optimizer made of the model's parameters?");
  }
  state.found_inf = found;
  state.stage = Stage::unscaled;
}

bool GradScaler::found_inf(const torch::optim::Optimizer& optimizer) const {
  const auto state = states_.find(&optimizer);
  return state != states_.end() && state->second.found_inf;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer, const std::function<void()>& optimizer_step) {
  const auto take_step = [&] {
    if (optimizer_step) {
      optimizer_step();
    } else {
      optimizer.step();
    }
    return true;
  };
  if (!options_.enabled) return take_step();
  require_scale("step()");
  if (states_[&optimizer].stage == Stage::stepped)
    throw UsageError("GradScaler::step() was already called for this optimizer since the last update()");
  if (states_[&optimizer].stage == Stage::ready) unscale_(optimizer);
  OptimizerState& state = states_[&optimizer];
  state.stage = Stage::stepped;
  return !state.found_inf && take_step();
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled) return;
  require_scale("update()");
  if (new_scale) {
    if (!(*new_scale > 0)) throw UsageError(str("GradScaler: a scale of ", *new_scale, " must be above 0"));
    scale_.fill_(*new_scale);
  } else {
    const bool checked = std::any_of(states_.begin(), states_.end(),
                                     [](const auto& entry) { return entry.second.stage != Stage::ready; });
    if (!checked) throw UsageError("GradScaler::update() before any step(): gradients have not been checked");
    const bool found =
        std::any_of(states_.begin(), states_.end(), [](const auto& entry) { return entry.second.found_inf; });
    at::_amp_update_scale_(scale_, growth_tracker_, float_scalar(found ? 1.0 : 0.0, scale_.device()),
                           options_.growth_factor, options_.backoff_factor, options_.growth_interval);
  }
  states_.clear();
}

double GradScaler::get_scale() const {
  if (!options_.enabled) return 1.0;
  return scale_.defined() ? static_cast<double>(scale_.item<float>()) : options_.init_scale;
}

nlohmann::json GradScaler::state_dict() const {
  if (!options_.enabled) return nlohmann::json::object();
  return {
      {"scale", get_scale()},
      {"growth_factor", options_.growth_factor},
      {"backoff_factor", options_.backoff_factor},
      {"growth_interval", options_.growth_interval},
      {"_growth_tracker", scale_.defined() ? growth_tracker_.item<std::int32_t>() : initial_growth_tracker_}};
}

void GradScaler::load_state_dict(const nlohmann::json& state) {
  if (!options_.enabled) return;
  if (state.empty()) {
    throw DataError(
        "GradScaler: the state is empty, perhaps because it was saved by a scaler that was not enabled");
  }
  Options options = options_;
  std::int64_t tracker = 0;
  try {
    const auto entry = [&](const char* key) -> const nlohmann::json& {
      return json_member(state, key, "the state");
    };
    options.init_scale = json_number(entry("scale"), "\"scale\"");
    options.growth_factor = json_number(entry("growth_factor"), "\"growth_factor\"");
    options.backoff_factor = json_number(entry("backoff_factor"), "\"backoff_factor\"");
    options.growth_interval = json_integer(entry("growth_interval"), "\"growth_interval\"", 1);
    // The tracker is stored as a 32-bit tensor.
    tracker = json_integer(entry("_growth_tracker"), "\"_growth_tracker\"", 0, INT32_MAX);
    check_options(options);
  } catch (const std::exception& e) {
    throw DataError(str("GradScaler: this is not the state of a scaler: ", json_problem(e)));
  }
  options_ = options;
  initial_growth_tracker_ = tracker;
  if (!scale_.defined()) return;
  scale_.fill_(options.init_scale);
  growth_tracker_.fill_(tracker);
}

}  // namespace rondo
