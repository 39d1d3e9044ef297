#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "rondo/observe/step_timer.h"

namespace rondo {

class Trainer;

// A call of Trainer::fit, as callbacks see it when it begins.
struct FitPlan {
  std::int64_t first_step = 0;   // steps done before (a resumed run)
  std::int64_t total_steps = 0;  // steps done when training ends
  std::int64_t steps_per_epoch = 0;
  std::string unit = "samples";  // what throughput counts: "samples" or "tokens"
};

// One optimizer step. Losses and counts are over all ranks and the same on each; times are this rank's.
struct StepRecord {
  std::int64_t step = 0;   // steps done, this one included
  std::int64_t epoch = 0;  // from 0
  double epochs_done = 0;  // with the fraction of the current one
  double loss = 0;         // mean over the predictions of the global batch
  double learning_rate = 0;
  std::optional<double> loss_scale = {};  // that this step's gradients were computed with; empty without one
  std::int64_t samples = 0;
  double rate = 0;  // FitPlan::unit per second
  StepTimes times;
  double elapsed_s = 0;  // training time, resumed runs included
};

// One pass over the validation data.
struct ValidationRecord {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double elapsed_s = 0;
  std::map<std::string, double> values;  // by name of metric
};

enum class FitEnd {
  finished,   // all steps were done
  early,      // a callback asked to stop
  preempted,  // FitOptions::stop_requested said so on some rank; the run can be resumed
};

struct FitResult {
  std::int64_t step = 0;
  double loss = 0;                           // of the last step
  std::map<std::string, double> validation;  // the last pass over the validation data; empty without one
  FitEnd end = FitEnd::finished;
};

// Something that happens alongside training. Every rank has the same callbacks in the same order and calls
// them at the same steps, so a callback may communicate; what it writes, it writes on one rank. Calls come
// from fit's thread.
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_train_begin(Trainer&, const FitPlan&) {}
  virtual void on_step_end(Trainer&, const StepRecord&) {}
  virtual void on_epoch_end(Trainer&, std::int64_t /*epoch*/) {}
  virtual void on_validation_end(Trainer&, const ValidationRecord&) {}
  // Not called when training ends by an exception.
  virtual void on_train_end(Trainer&, const FitResult&) {}
  // Asked after each step; the answer must be the same on all ranks.
  virtual bool wants_to_stop() const { return false; }

  // What a resumed run must know, saved with every checkpoint under name(); null when there is nothing.
  virtual std::string name() const = 0;
  virtual nlohmann::json state() const { return nullptr; }
  virtual void restore(const nlohmann::json&) {}
};

}  // namespace rondo
