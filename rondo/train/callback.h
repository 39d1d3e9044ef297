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

// A call of Trainer::fit, as callbacks see it when it begins.
struct FitOutline {
  std::int64_t first_step = 0;       // steps done before (a resumed run)
  std::int64_t total_steps = 0;      // steps done when training ends
  std::int64_t steps_per_epoch = 0;  // optimizer steps; of a virtual epoch where FitOptions has such
  std::string unit = "samples";      // what throughput counts: "samples" or "tokens"
  // A request to stop interrupted the validation after first_step; it is the first thing that fit does.
  bool validation_due = false;
  bool validates = false;          // FitOptions::validation is given
  SchedulePosition schedule = {};  // along a learning-rate schedule
};

// One optimizer step. Losses and counts are over all ranks and the same on each; times are this rank's.
struct StepRecord {
  std::int64_t step = 0;                  // steps done, this one included
  std::int64_t epoch = 0;                 // from 0
  double epochs_done = 0;                 // with the fraction of the current one
  double loss = 0;                        // mean over the predictions of the global batch
  double learning_rate = 0;               // of the first parameter group
  std::optional<double> loss_scale = {};  // that this step's gradients were computed with; empty without one
  std::optional<double> gradient_norm = {};  // L2, before clipping; empty where nothing is clipped
  std::int64_t samples = 0;                  // of this step, on all ranks
  double rate = 0;                           // FitOutline::unit per second
  StepTimes times;                           // of this rank
  StepFigures figures = {};                  // what modules have counted on this rank
  double elapsed_s = 0;                      // training time, resumed runs included
};

// One pass over the validation data.
struct ValidationRecord {
  std::int64_t step = 0;                 // optimizer steps done
  std::int64_t epoch = 0;                // from 0
  double elapsed_s = 0;                  // since the validation began
  std::map<std::string, double> values;  // by name of metric
};

// An epoch that has ended, on all ranks together; the same on each.
struct EpochRecord {
  std::int64_t epoch = 0;    // from 0
  std::int64_t step = 0;     // optimizer steps done
  double loss = 0;           // mean over the predictions of its steps, resumed runs included
  double learning_rate = 0;  // of its last step, of the first parameter group
  std::int64_t samples = 0;  // of its steps, resumed runs included
  double elapsed_s = 0;      // training time, resumed runs included
  std::map<std::string, double> validation = {};  // of the validation after its last step; empty without one
};

// Why a fit ended.
enum class FitEnd {
  finished,   // all steps were done
  early,      // a callback asked to stop
  preempted,  // FitOptions::stop_requested said so on some rank; the run can be resumed
};

// How a training ended.
struct FitResult {
  std::int64_t step = 0;            // optimizer steps done
  std::optional<double> loss = {};  // of the last step, of an earlier fit's where this one had none
  // The last pass over the validation data, or that of the weights that a callback has put at the end
  // (EarlyStopping::Options::restore_best); empty without one.
  std::map<std::string, double> validation;
  FitEnd end = FitEnd::finished;          // why it ended
  std::string ended_by = {};              // with FitEnd::early: name() of the callback that asked for it
  std::vector<EpochRecord> history = {};  // of each epoch that ended in this call
};

// Something that happens alongside training. Every rank has the same callbacks in the same order and calls
// them at the same steps, so a callback may communicate; what it writes, it writes on one rank. Calls come
// from fit's thread.
//
// A callback that throws on some ranks ends fit on all of them with an AgreedError, which has its name and
// its message, after the next step at the latest; until then the others are called as ever, since they may
// communicate. One that throws where its peers on other ranks communicate leaves those waiting until the
// deadline.
class Callback {
 public:
  virtual ~Callback() = default;

  // First of all, before fit looks at the position: the moment to restore a checkpoint.
  virtual void before_fit(Trainer&) {}
  virtual void on_train_begin(Trainer&, const FitOutline&) {}       // before the first step
  virtual void on_epoch_begin(Trainer&, std::int64_t /*epoch*/) {}  // before its first step in this call
  virtual void on_step_begin(Trainer&, std::int64_t /*step*/) {}    // before each; steps done until now
  virtual void on_step_end(Trainer&, const StepRecord&) {}          // after each optimizer step
  virtual void on_epoch_end(Trainer&, const EpochRecord&) {}        // after the last step of an epoch
  virtual void on_validation_begin(Trainer&) {}  // before each pass over the validation data
  // During a validation, after some of its batches: how many of all ranks' are done.
  virtual void on_validation_progress(Trainer&, std::int64_t /*batches*/, std::int64_t /*of*/) {}
  // After each pass over the validation data that was not interrupted.
  virtual void on_validation_end(Trainer&, const ValidationRecord&) {}
  // Everything that belongs to the step has happened on all callbacks, its validation and the end of its
  // epoch included: the moment for a checkpoint.
  virtual void on_step_complete(Trainer&, const StepRecord&) {}
  // Trainer::save() is about to take everybody's state(): what a resumed run will not have again must be on
  // disk when this returns.
  virtual void before_save(Trainer&) {}
  // The checkpoint of the present step is in `root`.
  virtual void after_save(Trainer&, const std::filesystem::path& /*root*/) {}
  // Not called when training ends by an exception.
  virtual void on_train_end(Trainer&, const FitResult&) {}
  // Training ends by it. Must not communicate: other ranks may be gone.
  virtual void on_exception(Trainer&, const std::exception&) noexcept {}

  // Asked after each step, and by a resumed run before its first; the answer must be the same on all ranks.
  virtual bool wants_to_stop() const { return false; }
  // Asked once, before the first step: a function as FitOptions::stop_requested, on all ranks or none; empty
  // for a callback that never pre-empts.
  virtual std::function<bool()> stop_request() { return {}; }
  // Asked before each step: what the learning rate is multiplied with, the same on all ranks.
  virtual double learning_rate_factor() const { return 1; }
  // Asked before each step: whether its StepRecord is to have the gradients' norm; the same on all ranks.
  virtual bool wants_gradient_norm(std::int64_t /*step*/) const { return false; }

  // What a resumed run must know, saved with every checkpoint under name(); null when there is nothing.
  // Callbacks of one name are told apart by their order.
  virtual std::string name() const = 0;
  // Null when there is nothing.
  virtual nlohmann::json state() const { return nullptr; }
  virtual void restore(const nlohmann::json&) {}  // what state() gave, before on_train_begin()
};

}  // namespace rondo
