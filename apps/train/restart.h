#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "apps/train/flags.h"
#include "apps/train/run_directory.h"
#include "rondo/backend/context.h"
#include "rondo/train/callback.h"
#include "rondo/train/training_place.h"

namespace rondo {

// Makes a job that has been started again go on with its run, without --resume: by a launcher
// (`launcher_restarted`) or by Slurm (SLURM_RESTART_COUNT). A checkpoint of another run that --resume names
// is where the first start began: it counts only until the run has checkpoints of its own.
void go_on_after_restart(TrainFlags& flags, bool launcher_restarted);

// What a training has in the memory that its launcher keeps for restarts (`--max-restarts`).
class RestartMemory {
 public:
  // Of the run in --run-dir; none without that, or without such a launcher. Collective.
  RestartMemory(const TrainFlags& flags, const TrainingPlace& place, const Context& context);

  // Throws UsageError for --replica-every where there is no such memory, and with what replicas lack.
  void check(const TrainFlags& flags, const TrainingPlace& place) const;
  // An earlier attempt of this job has begun to train in this directory, so the training goes on.
  bool goes_on() const { return goes_on_; }
  // Where the memory has a newer state than the checkpoint to resume from, `run` resumes from that.
  // Collective.
  void choose(const Context& context, RunDirectory& run) const;
  // When everything has been checked: from here on a restart goes on.
  void begin() const;
  // Null without --replica-every.
  std::shared_ptr<Callback> callback(const TrainFlags& flags) const;

 private:
  std::optional<std::filesystem::path> root_;
  bool goes_on_ = false;
};

}  // namespace rondo
