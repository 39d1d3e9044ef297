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

// Where a run keeps its files.
struct RunDirectory {
  std::filesystem::path path;
  std::optional<std::filesystem::path> resume_from;  // a checkpoint to continue from
  bool goes_on = false;                              // that one is of this run; on the rank that writes
  // On the rank that writes, of a run that was given no directory. It goes after the lock, which is in it.
  std::shared_ptr<NewRunDirectory> made = {};
  std::shared_ptr<RunLock> lock = {};  // on the rank that writes

  std::filesystem::path checkpoints() const { return path / "checkpoints"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
};

// Finds the directory that `flags` mean, or makes one of its own for a run that names none; locks it, and
// finds what to resume from, which is nothing where there is no run yet; changes nothing in it. Throws
// UsageError for a directory in which another process trains and for one that holds a run already without
// --resume. Damaged checkpoints that --resume-intact passes over are logged.
// `writes` is false on a worker of parameter servers that is not the chief: it locks nothing, and the
// directory may be in use.
RunDirectory find_run_directory(const TrainFlags& flags, bool writes = true);

// What belongs into a run directory before the first step, by file name.
using RunFiles = std::map<std::string, std::string>;

// Writes config.json and other files into the run directory when training begins: by then everything has been
// checked, so that a run that is refused leaves the directory as it was. The first of fit's callbacks.
// Of a run that goes on from an older checkpoint of its own it removes the later ones, of training that this
// one takes the place of, when the first new one is complete: until then they are what the run has.
// A directory that is removed or renamed while training is named in a warning, and made again.
class RunDirectoryWriter final : public Callback {
 public:
  RunDirectoryWriter(RunDirectory run, RunFiles files) : run_(std::move(run)), files_(std::move(files)) {}
  std::string name() const override { return "run_directory"; }
  // Throws AgreedError on all ranks.
  void on_train_begin(Trainer& trainer, const FitOutline& outline) override;
  void on_step_complete(Trainer& trainer, const StepRecord& record) override;
  void before_save(Trainer& trainer) override { look_after_directory(trainer.strategy().context()); }
  // A checkpoint in the background is waited for while there are checkpoints to remove.
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
  bool replaces_ = false;                  // checkpoints, on all ranks
  std::vector<CheckpointEntry> replaced_;  // those, on rank 0
  bool ends_ = false;
  std::optional<TimePoint> looked_;  // at the directory, on rank 0
  bool is_lost_ = false;             // it was removed, and could not be made again yet
};

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
