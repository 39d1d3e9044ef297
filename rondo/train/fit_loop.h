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
  int replicas() const;  // replicas among which a batch is divided
  // Sets the position to options.initial_epoch if nothing has been trained yet.
  void begin_at_initial_epoch();
  // Calls `hook(callback)` for each callback. Exceptions are agreed on later, or thrown with one rank.
  void tell(const std::function<void(Callback&)>& hook);
  // Throws if a callback has failed on any rank. Collective.
  void agree_on_failure();
  // Applies the callbacks' settings for the next step.
  void set_step();
  // Returns the epoch of step number `step`, from 0, in the callbacks' numbering.
  std::int64_t epoch_of(std::int64_t step) const;
  void end_epoch(const StepRecord& record);
  // Converts the position within the epoch, which may come from a checkpoint, to this call's batches.
  void adopt_position();
  void seek(std::int64_t epoch, std::int64_t batch);
  // Returns the optimizer steps of a pass over the data.
  std::int64_t steps_per_pass() const;
  // Returns the optimizer steps done at the end of training.
  std::int64_t last_step() const;
  // Returns this rank's batches for the next step; empty ones if the rank has no data left.
  std::vector<Batch> next_window();
  StepResult train_on(const std::vector<Batch>& window);
  // Reports the current phase of a step to the memory tracker and the timeline.
  void begin_phase(StepPhase phase);
  void finish_step(const StepResult& step);
  // Returns false if a request to stop interrupted it: then callbacks get no result, and the validation
  // remains due.
  bool validate();
  // Completes the previous run's unfinished work after its last step.
  void catch_up();
  // Logs a warning on rank 0 that this call has no step to do.
  void warn_no_steps_left() const;
  // Returns whether a callback wants to stop, and stores its name.
  bool callbacks_want_to_stop();
  // Sets the phase and category of this thread's further allocations in this step.
  void memory_phase(const char* phase, MemoryCategory category);
  bool tracing() const;

  Trainer& trainer_;     // argument of callbacks
  TrainerState& state_;  // state of the trainer
  std::shared_ptr<const Dataset> data_;
  FitOptions options_;
  InputDivision division_;
  FitOutline outline_;
  std::shared_ptr<TrainingSampler> sampler_;
  std::int64_t process_batch_ = 0;     // samples in a batch of this process, over all its replicas
  std::int64_t batches_in_epoch_ = 0;  // batches of the current epoch
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<StepTrace> trace_;  // set while steps are traced
  StepTimer timer_;
  TimePoint last_elapsed_;
  FitResult result_;
  bool counts_tokens_ = false;
  std::vector<CountsFigures*> counting_;  // modules of the model
  bool moves_rate_ = false;               // whether a callback has multiplied the optimizer's own rate
  bool in_epoch_ = false;                 // whether on_epoch_begin() was called
  StepSettings settings_;                 // settings of every step, except its number and rate
  // Phase of the current step, for the timeline.
  StepPhase phase_ = StepPhase::end;
  std::int64_t phase_begin_ns_ = 0;
};

}  // namespace rondo
