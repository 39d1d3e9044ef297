#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/nn/step_figures.h"
#include "rondo/observe/step_times.h"
#include "rondo/train/schedule_position.h"

namespace rondo {

class Trainer;

// Overview of a call of Trainer::fit, for callbacks at its beginning.
struct FitOutline {
  std::int64_t first_step = 0;       // steps done before this call (a resumed run)
  std::int64_t total_steps = 0;      // steps done at the end of training
  std::int64_t steps_per_epoch = 0;  // optimizer steps; of a virtual epoch if FitOptions sets it
  std::string unit = "samples";      // unit of throughput: "samples" or "tokens"
  // A request to stop interrupted the validation after first_step, so fit begins with it.
  bool validation_due = false;
  bool validates = false;          // whether FitOptions::validation is set
  SchedulePosition schedule = {};  // position along a learning-rate schedule
};

// One optimizer step. Losses and counts are over all ranks and the same on each; times are this rank's.
struct StepRecord {
  std::int64_t step = 0;                     // steps done, including this one
  std::int64_t epoch = 0;                    // from 0
  double epochs_done = 0;                    // with the fraction of the current epoch
  double loss = 0;                           // mean over the predictions of the global batch
  double learning_rate = 0;                  // rate of the first parameter group
  std::optional<double> loss_scale = {};     // scale of this step's gradients; empty without a scaler
  std::optional<double> gradient_norm = {};  // L2, before clipping; empty if not computed
  std::int64_t samples = 0;                  // samples of this step on all ranks
  double rate = 0;                           // FitOutline::unit per second
  StepTimes times;                           // times of this rank
  StepFigures figures = {};                  // figures counted by modules on this rank
  double elapsed_s = 0;                      // training time, including resumed runs
};

// One pass over the validation data.
struct ValidationRecord {
  std::int64_t step = 0;                 // optimizer steps done
  std::int64_t epoch = 0;                // from 0
  double elapsed_s = 0;                  // training time at its end, including resumed runs
  std::map<std::string, double> values;  // by name of metric
};

// A finished epoch, over all ranks; the same on each.
struct EpochRecord {
  std::int64_t epoch = 0;    // from 0
  std::int64_t step = 0;     // optimizer steps done
  double loss = 0;           // mean over the predictions of its steps, including resumed runs
  double learning_rate = 0;  // rate of the first parameter group at its last step
  std::int64_t samples = 0;  // samples of its steps, including resumed runs
  double elapsed_s = 0;      // training time, including resumed runs
  std::map<std::string, double> validation = {};  // validation after its last step; empty without one
};

// Reason for the end of a fit.
enum class FitEnd {
  finished,   // all steps were done
  early,      // a callback requested the stop
  preempted,  // FitOptions::stop_requested returned true on some rank; the run can be resumed
};

// Result of Trainer::fit.
struct FitResult {
  std::int64_t step = 0;            // optimizer steps done
  std::optional<double> loss = {};  // loss of the last step, possibly of an earlier fit
  // Figures of the last validation, or of weights that a callback has restored at the end
  // (EarlyStopping::Options::restore_best); empty without one.
  std::map<std::string, double> validation;
  FitEnd end = FitEnd::finished;          // reason for the end
  std::string ended_by = {};              // with FitEnd::early: name() of the callback that requested the
                                          // stop
  std::vector<EpochRecord> history = {};  // epochs that ended in this call
};

// A hook into training. Every rank has the same callbacks in the same order and calls them at the same steps,
// so a callback may communicate; it writes files on one rank. All calls come from fit's thread.
//
// If a callback throws on some ranks, fit ends on all ranks with an AgreedError that has its name and
// message, at the latest after the next step. Until then the other callbacks are called as usual, because
// they may communicate. If a callback throws while the same callback communicates on other ranks, these block
// until the deadline.
class Callback {
 public:
  virtual ~Callback() = default;

  // Called first, before fit reads the position: restore a checkpoint here.
  virtual void before_fit(Trainer&) {}
  virtual void on_train_begin(Trainer&, const FitOutline&) {}  // called before the first step
  // Called before the first step that fit() runs of an epoch.
  virtual void on_epoch_begin(Trainer&, std::int64_t /*epoch*/) {}
  // Called before each step with the number of finished steps.
  virtual void on_step_begin(Trainer&, std::int64_t /*step*/) {}
  virtual void on_step_end(Trainer&, const StepRecord&) {}    // called after each optimizer step
  virtual void on_epoch_end(Trainer&, const EpochRecord&) {}  // called after the last step of an epoch
  virtual void on_validation_begin(Trainer&) {}               // called before each validation
  // Called during a validation with the number of finished batches on all ranks.
  virtual void on_validation_progress(Trainer&, std::int64_t /*batches*/, std::int64_t /*of*/) {}
  // Called after each validation that was not interrupted.
  virtual void on_validation_end(Trainer&, const ValidationRecord&) {}
  // Called after all other events of the step, including its validation and the end of its epoch: save
  // checkpoints here.
  virtual void on_step_complete(Trainer&, const StepRecord&) {}
  // Called by Trainer::save() before it reads every callback's state(). Data that a resumed run cannot
  // reproduce must be on disk when this returns.
  virtual void before_save(Trainer&) {}
  // Called when the checkpoint of the present step is in `root`.
  virtual void after_save(Trainer&, const std::filesystem::path& /*root*/) {}
  // Called at the end of training, unless an exception ended it.
  virtual void on_train_end(Trainer&, const FitResult&) {}
  // Called when an exception ends training. Must not communicate, because other ranks may be gone.
  virtual void on_exception(Trainer&, const std::exception&) noexcept {}

  // Returns whether training should stop; called after each step, and before the first step of a resumed run.
  // The result must be the same on all ranks.
  virtual bool wants_to_stop() const { return false; }
  // Returns a function such as FitOptions::stop_requested, on all ranks or none; empty for a callback that
  // never pre-empts. Called once before the first step.
  virtual std::function<bool()> stop_request() { return {}; }
  // Returns the multiplier of the learning rate, the same on all ranks; called before each step.
  virtual double learning_rate_factor() const { return 1; }
  // Returns whether this step's StepRecord needs the gradients' norm, the same on all ranks; called before
  // each step.
  virtual bool wants_gradient_norm(std::int64_t /*step*/) const { return false; }

  // Returns the name under which every checkpoint saves state(). Callbacks with the same name are
  // distinguished by their order.
  virtual std::string name() const = 0;
  // Returns the state that a resumed run needs; null if there is none.
  virtual nlohmann::json state() const { return nullptr; }
  virtual void restore(const nlohmann::json&) {}  // receives state(), before on_train_begin()
};

}  // namespace rondo
