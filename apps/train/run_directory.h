#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/train/flags.h"
#include "apps/train/run_folder.h"
#include "rondo/backend/context.h"
#include "rondo/base/time.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/format/run_directory.h"
#include "rondo/train/callback.h"
#include "rondo/train/trainer.h"
#include "rondo/train/training_place.h"

namespace rondo {

// The files of a run.
struct RunDirectory {
  std::filesystem::path path;
  std::optional<std::filesystem::path> resume_from;  // a checkpoint to continue from
  bool goes_on = false;  // whether resume_from belongs to this run; set on the writing rank
  // Set on the writing rank of a run without a given directory. Destroyed after the lock, whose file is
  // inside.
  std::shared_ptr<NewRunDirectory> made = {};
  std::shared_ptr<RunLock> lock = {};  // on the writing rank

  std::filesystem::path checkpoints() const { return path / "checkpoints"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
};

// Finds the directory that `flags` name, or creates one for a run that names none. Locks it, and finds the
// checkpoint to resume from, if there is a run; changes nothing in it. Throws UsageError for a directory in
// which another process trains, and for one with a run if --resume is missing. Logs damaged checkpoints that
// --resume-intact skips. `writes` is false on a worker of parameter servers that is not the chief: it takes
// no lock, and the directory may be in use.
RunDirectory find_run_directory(const TrainFlags& flags, bool writes = true);

// Files to write into a run directory before the first step, by name.
using RunFiles = std::map<std::string, std::string>;

// Writes config.json and other files into the run directory when training begins. Everything has been checked
// by then, so a refused run leaves the directory unchanged. It is the first of fit's callbacks. If a run
// resumes from an older checkpoint of its own, the later checkpoints belong to training that it replaces.
// They are removed when the first new one is complete, and are the run's checkpoints until then. If the
// directory is removed or renamed during training, prints a warning and creates it again.
class RunDirectoryWriter final : public Callback {
 public:
  RunDirectoryWriter(RunDirectory run, RunFiles files) : run_(std::move(run)), files_(std::move(files)) {}
  std::string name() const override { return "run_directory"; }
  // Throws AgreedError on all ranks.
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_step_complete(Trainer& trainer, const StepRecord& record) override;
  void before_save(Trainer& trainer) override { look_after_directory(trainer.strategy().context()); }
  // Waits for a checkpoint in the background while there are checkpoints to remove.
  void after_save(Trainer& trainer, const std::filesystem::path& root) override;
  void on_train_end(Trainer& trainer, const FitResult&) override {
    look_after_directory(trainer.strategy().context());
    ends_ = true;
  }

 private:
  void write_files() const;
  void look_after_directory(const Context& context);
  void remove_replaced();

  RunDirectory run_;
  RunFiles files_;
  std::int64_t first_step_ = 0;
  bool replaces_ = false;                  // checkpoints are to be removed, on all ranks
  std::vector<CheckpointEntry> replaced_;  // checkpoints to remove, on rank 0
  bool ends_ = false;
  std::optional<TimePoint> looked_;  // last check of the directory, on rank 0
  bool is_lost_ = false;             // whether the directory was removed and could not be created again yet
};

// Makes a restarted job resume its run, without --resume: restarted by a launcher (`launcher_restarted`) or
// by Slurm (SLURM_RESTART_COUNT). A checkpoint of another run that --resume names is the start of the first
// attempt: it is ignored once the run has checkpoints of its own.
void go_on_after_restart(TrainFlags& flags, bool launcher_restarted);

// A training's state in memory that its launcher keeps for restarts (`--max-restarts`).
class RestartMemory {
 public:
  // Opens the memory of the run in --run-dir; empty without a run directory or such a launcher. Collective.
  RestartMemory(const TrainFlags& flags, const TrainingPlace& place, const Context& context);

  // Throws UsageError for --memory-checkpoint-every without such memory, and for options that memory
  // checkpoints do not support.
  void check(const TrainFlags& flags, const TrainingPlace& place) const;
  // Returns true if an earlier attempt of this job has begun to train in this directory, so that the training
  // continues.
  bool goes_on() const { return goes_on_; }
  // Makes `run` resume from the memory if its state is newer than the checkpoint. Collective.
  void choose(const Context& context, RunDirectory& run) const;
  // Marks the training as begun, when everything has been checked: a restart from then on continues it.
  void begin() const;
  // Returns the callback, or null without --memory-checkpoint-every.
  std::shared_ptr<Callback> callback(const TrainFlags& flags) const;

 private:
  std::optional<std::filesystem::path> root_;
  bool goes_on_ = false;
};

}  // namespace rondo
