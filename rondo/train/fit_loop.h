#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "rondo/data/loader.h"
#include "rondo/memory/category.h"
#include "rondo/observe/step_timer.h"
#include "rondo/train/step_trace.h"
#include "rondo/train/trainer.h"
#include "rondo/train/training_sampler.h"

namespace rondo {

// One call of Trainer::fit: batches in, optimizer steps and records out.
class FitLoop {
 public:
  // Throws UsageError for options that do not fit the data.
  FitLoop(Trainer& trainer, const std::shared_ptr<const Dataset>& data, const FitOptions& options);
  FitResult run();

 private:
  // Sums over the ranks that took part in a step.
  struct StepSums {
    double loss = 0;
    double predictions = 0;
    double samples = 0;
    bool stop = false;
  };

  void check_options() const;
  // Makes the position within the epoch, which may come from a checkpoint, one of this call's batches.
  void adopt_position();
  void seek(std::int64_t epoch, std::int64_t batch);
  // This rank's batches for the next step; empty ones where the rank has run out of data.
  std::vector<Batch> next_window();
  StepSums train_on(std::vector<Batch>& window);
  // Clipping and the optimizer's step, or only the word that it is skipped.
  void take_step(torch::optim::Optimizer& optimizer);
  StepSums sum_over_ranks(const StepSums& local) const;
  void finish_step(const StepSums& sums);
  void finish_epoch();
  void validate();
  // Says what this thread allocates from here on in this step is for.
  void memory_phase(const char* phase, MemoryCategory category);
  bool tracing() const;

  Trainer& trainer_;
  std::shared_ptr<const Dataset> data_;
  FitOptions options_;
  FitPlan plan_;
  std::int64_t batches_per_epoch_ = 0;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<StepTrace> trace_;  // while steps are traced
  StepTimer timer_;
  TimePoint last_elapsed_;
  FitResult result_;
  std::int64_t validated_step_ = -1;
  bool counts_tokens_ = false;
  // Of the step that is under way.
  std::optional<double> loss_scale_;
  bool skipped_ = false;
};

}  // namespace rondo
