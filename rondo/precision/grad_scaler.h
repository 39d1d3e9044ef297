#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "rondo/backend/group.h"

namespace torch::optim {
class Optimizer;
}

namespace rondo {

// Keeps gradients of float16 in its range: the loss is multiplied with a scale, gradients are divided by it
// before the optimizer's step, and a step with an infinite or NaN gradient is left out. The states, their
// order and the saved form are those of torch.amp.GradScaler (PyTorch 2.13):
//
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);        // only where gradients are looked at, e.g. to clip them
//   scaler.step(optimizer);            // left out when any gradient is infinite or NaN
//   scaler.update();                   // then: scale x backoff_factor; after growth_interval good steps
//                                      // x growth_factor
//
// Over a group of several ranks all of them make the same calls, and one rank's bad gradient skips the step
// on all: each may hold other parts of the gradients. One thread uses an object.
class GradScaler {
 public:
  // How the scale moves.
  struct Options {
    double init_scale = 65536.0;          // of the first step
    double growth_factor = 2.0;           // after growth_interval good steps
    double backoff_factor = 0.5;          // after a gradient that is infinite or NaN
    std::int64_t growth_interval = 2000;  // good steps between growths
    bool enabled = true;                  // false: scale() and unscale_() do nothing, step() always steps
  };

  // Agrees with the other ranks of `group`; an empty handle is this process alone. Throws UsageError unless
  // growth_factor > 1, 0 < backoff_factor < 1, init_scale > 0 and growth_interval > 0.
  explicit GradScaler(const Options& options, Group group = {});
  // From here on it agrees with the ranks of `group`; of a step that was broken off nothing is left.
  void set_group(Group group) {
    group_ = std::move(group);
    states_.clear();
  }
  GradScaler() : GradScaler(Options{}) {}  // of this process alone, with the options' defaults

  // `outputs` times the scale, on the device of `outputs`; differentiable.
  at::Tensor scale(const at::Tensor& outputs);
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& outputs);  // each multiplied by the scale

  // Divides the gradients of the optimizer's parameters by the scale in place, and finds out whether all of
  // them, on all ranks, are finite. Collective. At most once for an optimizer between two update() calls.
  // Throws UsageError out of that order, before the first scale(), and for float16 gradients (see
  // MasterWeights).
  void unscale_(torch::optim::Optimizer& optimizer);
  // Whether the last unscale_() found an infinite or NaN gradient of this optimizer on some rank.
  bool found_inf(const torch::optim::Optimizer& optimizer) const;

  // unscale_() unless that was done, then the optimizer's step unless a gradient is infinite or NaN; returns
  // whether it stepped. `optimizer_step` replaces optimizer.step(). Collective; once between update() calls.
  bool step(torch::optim::Optimizer& optimizer, const std::function<void()>& optimizer_step = {});

  // Moves the scale by what the steps since the last call found, or sets it to `new_scale`. After all
  // step() calls of an iteration.
  void update(std::optional<double> new_scale = {});

  double get_scale() const;                                                     // 1 when not enabled
  double growth_factor() const { return options_.growth_factor; }               // of the scale, when it grows
  double backoff_factor() const { return options_.backoff_factor; }             // of the scale, when it falls
  std::int64_t growth_interval() const { return options_.growth_interval; }     // good steps between growths
  void set_growth_factor(double factor) { options_.growth_factor = factor; }    // of later updates
  void set_backoff_factor(double factor) { options_.backoff_factor = factor; }  // of later updates
  // Of later updates.
  void set_growth_interval(std::int64_t interval) { options_.growth_interval = interval; }
  bool is_enabled() const { return options_.enabled; }  // false: everything passes through unchanged

  // {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}; {} when not enabled.
  nlohmann::json state_dict() const;
  // Throws DataError for an empty state (saved by a scaler that was not enabled) or one that lacks a key.
  void load_state_dict(const nlohmann::json& state);

 private:
  enum class Stage { ready, unscaled, stepped };
  struct OptimizerState {
    Stage stage = Stage::ready;
    bool found_inf = false;
  };

  void require_scale(const char* method) const;
  at::Tensor scale_on(c10::Device device);
  // Unscales and returns {some gradient is infinite or NaN, there is a gradient}, of this rank.
  std::pair<bool, bool> unscale_gradients(torch::optim::Optimizer& optimizer);

  Options options_;
  Group group_;
  // Made by the first scale(), on the device of what was scaled: [] float32 and [] int32.
  at::Tensor scale_;
  at::Tensor growth_tracker_;
  std::int64_t initial_growth_tracker_ = 0;
  std::map<const torch::optim::Optimizer*, OptimizerState> states_;  // since the last update()
};

}  // namespace rondo
