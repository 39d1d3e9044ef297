#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "rondo/data/loader.h"
#include "rondo/data/training_sampler.h"
#include "rondo/memory/scope.h"
#include "rondo/nn/step_figures.h"
#include "rondo/observe/step_times.h"
#include "rondo/strategy/input_division.h"
#include "rondo/train/step_trace.h"
#include "rondo/train/trainer.h"
#include "rondo/train/trainer_state.h"

namespace rondo {

// One call of Trainer::fit: batches in, optimizer steps and records out.
class FitLoop {
 public:
  // Throws UsageError for options that do not fit the data.
  FitLoop(Trainer& trainer, TrainerState& state, const std::shared_ptr<const Dataset>& data,
          const FitOptions& options);
  FitResult run();

 private:
  void check_options() const;
  int replicas() const;  // among whom a batch is divided
  // A training that has done nothing begins at options.initial_epoch.
  void begin_at_initial_epoch();
  // Calls `hook(callback)` for each; what it throws is agreed on later, or thrown where there is one rank.
  void tell(const std::function<void(Callback&)>& hook);
  // Throws when a callback has failed on some rank. Collective.
  void agree_on_failure();
  // What callbacks ask for, for the next step.
  void set_step();
  // The epoch in which step number `step`, from 0, is done, by the numbers that callbacks are told.
  std::int64_t epoch_of(std::int64_t step) const;
  void end_epoch(const StepRecord& record);
  // Makes the position within the epoch, which may come from a checkpoint, one of this call's batches.
  void adopt_position();
  void seek(std::int64_t epoch, std::int64_t batch);
  // Optimizer steps of a pass over the data.
  std::int64_t steps_per_pass() const;
  // Optimizer steps done when training ends.
  std::int64_t last_step() const;
  // This rank's batches for the next step; empty ones where the rank has run out of data.
  std::vector<Batch> next_window();
  StepResult train_on(const std::vector<Batch>& window);
  // Tells the memory tracker and the timeline what a step does now.
  void begin_phase(StepPhase phase);
  void finish_step(const StepResult& step);
  // Whether a request to stop came in between: then nobody is told of a validation, and it remains due.
  bool validate();
  // What remained to be done after the last step of the run before.
  void catch_up();
  // Warns, on rank 0, that this call has no step to do.
  void say_that_nothing_is_left() const;
  // Remembers which does.
  bool callbacks_want_to_stop();
  // Says what this thread allocates from here on in this step is for.
  void memory_phase(const char* phase, MemoryCategory category);
  bool tracing() const;

  Trainer& trainer_;     // for callbacks
  TrainerState& state_;  // of the trainer
  std::shared_ptr<const Dataset> data_;
  FitOptions options_;
  InputDivision division_;
  FitOutline outline_;
  std::shared_ptr<TrainingSampler> sampler_;
  std::int64_t process_batch_ = 0;     // samples of a batch of this process, of all its replicas
  std::int64_t batches_in_epoch_ = 0;  // of the current one
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<StepTrace> trace_;  // while steps are traced
  StepTimer timer_;
  TimePoint last_elapsed_;
  FitResult result_;
  bool counts_tokens_ = false;
  std::vector<CountsFigures*> counting_;  // of the model
  bool moves_rate_ = false;               // a callback has multiplied the optimizer's own rate
  bool in_epoch_ = false;                 // callbacks know that the epoch has begun
  StepSettings settings_;                 // of every step, but for its number and rate
  // What the timeline knows of the step that is under way.
  StepPhase phase_ = StepPhase::end;
  std::int64_t phase_begin_ns_ = 0;
};

}  // namespace rondo
