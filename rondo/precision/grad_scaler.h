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

// A loss scaler that keeps float16 gradients in range. It multiplies the loss by a scale, divides the
// gradients by the scale before the optimizer's step, and skips a step that has an infinite or NaN gradient.
// States, their order and the saved form are those of torch.amp.GradScaler (PyTorch 2.13):
//
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);        // only to read the gradients, e.g. to clip them
//   scaler.step(optimizer);            // skipped when any gradient is infinite or NaN
//   scaler.update();                   // then: scale x backoff_factor; after growth_interval good steps
//                                      // x growth_factor
//
// All ranks of a group make the same calls. A non-finite gradient on one rank skips the step on all ranks,
// because each rank may hold other parts of the gradients. An object is used by one thread.
class GradScaler {
 public:
  // Initial value and update rule of the scale.
  struct Options {
    double init_scale = 65536.0;          // scale of the first step
    double growth_factor = 2.0;           // multiplier after growth_interval good steps
    double backoff_factor = 0.5;          // multiplier after an infinite or NaN gradient
    std::int64_t growth_interval = 2000;  // good steps between two growths
    bool enabled = true;                  // false: scale() and unscale_() do nothing, step() always steps
  };

  // Agrees on skipped steps with the other ranks of `group`; an empty handle means this process alone. Throws
  // UsageError unless growth_factor > 1, 0 < backoff_factor < 1, init_scale > 0 and growth_interval > 0.
  explicit GradScaler(const Options& options, Group group = {});
  // Replaces the group, and discards the state of an unfinished step.
  void set_group(Group group) {
    group_ = std::move(group);
    states_.clear();
  }
  GradScaler() : GradScaler(Options{}) {}  // This process alone, with default options

  // Returns `outputs` multiplied by the scale, on the device of `outputs`; differentiable.
  at::Tensor scale(const at::Tensor& outputs);
  std::vector<at::Tensor> scale(const std::vector<at::Tensor>& outputs);  // Scales each output

  // Divides the gradients of the optimizer's parameters by the scale in place, and checks whether all of them
  // are finite on all ranks. Collective. Call it at most once for an optimizer between two update() calls.
  // Throws UsageError when called out of order, before the first scale(), and for float16 gradients (see
  // MasterWeights).
  void unscale_(torch::optim::Optimizer& optimizer);
  // Returns whether the last unscale_() found an infinite or NaN gradient of this optimizer on any rank.
  bool found_inf(const torch::optim::Optimizer& optimizer) const;

  // Calls unscale_() unless it was called, then the optimizer's step unless a gradient is infinite or NaN.
  // Returns whether it stepped. `optimizer_step` replaces optimizer.step(). Collective; once between update()
  // calls.
  bool step(torch::optim::Optimizer& optimizer, const std::function<void()>& optimizer_step = {});

  // Adjusts the scale by the result of the steps since the last call, or sets it to `new_scale`. Call it
  // after all step() calls of an iteration.
  void update(std::optional<double> new_scale = {});

  double get_scale() const;  // 1 when not enabled
  // Returns the multiplier applied when the scale grows.
  double growth_factor() const { return options_.growth_factor; }
  // Returns the multiplier applied when the scale shrinks.
  double backoff_factor() const { return options_.backoff_factor; }
  // Returns the number of good steps between two growths.
  std::int64_t growth_interval() const { return options_.growth_interval; }
  void set_growth_factor(double factor) { options_.growth_factor = factor; }    // applies to later updates
  void set_backoff_factor(double factor) { options_.backoff_factor = factor; }  // applies to later updates
  // Sets the number of good steps between two growths, for later updates.
  void set_growth_interval(std::int64_t interval) { options_.growth_interval = interval; }
  // Returns whether losses are scaled; if not, every call passes its values through unchanged.
  bool is_enabled() const { return options_.enabled; }

  // Returns {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}; {} when not
  // enabled.
  nlohmann::json state_dict() const;
  // Throws DataError for an empty state (saved by a scaler that was not enabled) and for a missing key.
  void load_state_dict(const nlohmann::json& state);

 private:
  enum class Stage { ready, unscaled, stepped };
  struct OptimizerState {
    Stage stage = Stage::ready;
    bool found_inf = false;
  };

  void require_scale(const char* method) const;
  at::Tensor scale_on(c10::Device device);
  // Unscales this rank's gradients. Returns {a gradient is infinite or NaN, any gradient exists}.
  std::pair<bool, bool> unscale_gradients(torch::optim::Optimizer& optimizer);

  Options options_;
  Group group_;
  // Created by the first scale() on the device of its argument: [] float32 and [] int32.
  at::Tensor scale_;
  at::Tensor growth_tracker_;
  std::int64_t initial_growth_tracker_ = 0;
  std::map<const torch::optim::Optimizer*, OptimizerState> states_;  // state since the last update()
};

}  // namespace rondo
