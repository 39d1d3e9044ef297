#include "apps/train/run_directory.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

#include "apps/train/run_folder.h"
#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/progress_line.h"
#include "rondo/base/text.h"
#include "rondo/env/environment.h"
#include "rondo/env/sources/slurm.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/format/checkpoint_files.h"
#include "rondo/format/file.h"
#include "rondo/train/agreement.h"
#include "rondo/train/callbacks/save_or_warn.h"
#include "rondo/train/memory_checkpoint/memory_checkpoint.h"
#include "rondo/train/memory_checkpoint/memory_checkpoint_root.h"
#include "rondo/train/memory_checkpoint/newest_memory_checkpoint.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfiguration = "config.json";
// Interval between checks of the run directory during training.
constexpr Duration kBetweenLooks = std::chrono::seconds(1);

// Returns the run directory of a checkpoint (RUN/checkpoints/step-N), or `path` if it is one.
std::optional<fs::path> run_of(const fs::path& path) {
  for (const fs::path& candidate : {path, path.parent_path().parent_path()}) {
    if (!candidate.empty() && fs::exists(candidate / kConfiguration)) return candidate;
  }
  return std::nullopt;
}

// Returns the newest checkpoint of `path` in any state (its reader verifies it), or with --resume-intact the
// newest undamaged one.
fs::path checkpoint_to_resume(const TrainFlags& flags, const fs::path& path) {
  fs::path newest = find_checkpoint(path);
  if (!flags.resume_intact) return newest;
  const IntactCheckpoint found = newest_intact_checkpoint(parent_of_checkpoint(newest));
  for (const IntactCheckpoint::Damaged& damaged : found.skipped_checkpoints)
    log::warning("skipping ", damaged.entry.path.string(), ", which is damaged: ", describe(damaged.damage));
  if (!found.newest)
    throw DataError(str("--resume-intact: none of the checkpoints in ", parent_of_checkpoint(newest).string(),
                        " is intact"));
  return found.newest->path;
}

// Returns checkpoints of every kind after step `step`, by step; within a step that of the training comes
// first. Removed in this order, the newest one of the training keeps its companions as long as it exists.
std::vector<CheckpointEntry> checkpoints_behind(const RunDirectory& run, std::int64_t step) {
  std::vector<CheckpointEntry> found;
  for (const fs::path& root : {run.checkpoints(), run.path / "best", run.path / "average"}) {
    for (const CheckpointEntry& entry : step_directories(root)) {
      if (entry.step > step) found.push_back(entry);
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.step < b.step; });
  return found;
}

// Claims the directory for this run; `writes` as in find_run_directory().
void claim_run_directory(RunDirectory& run, const TrainFlags& flags, bool writes) {
  if (!writes) {
    if (run.path.empty()) run.path = default_run_directory(flags.model);
    return;
  }
  if (run.path.empty()) {
    run.made = std::make_shared<NewRunDirectory>(flags.model);
    run.path = run.made->path();
  }
  refuse_foreign_folder(run.path);
  run.lock = std::make_shared<RunLock>(run.path);
}

}  // namespace

RunDirectory find_run_directory(const TrainFlags& flags, bool writes) {
  RunDirectory run;
  run.path = flags.run_dir;
  if (!flags.resume_from.empty()) {
    if (run.path.empty()) run.path = run_of(find_checkpoint(flags.resume_from)).value_or(fs::path());
    claim_run_directory(run, flags, writes);
    run.resume_from = checkpoint_to_resume(flags, flags.resume_from);
    std::error_code is_new;
    run.goes_on = fs::equivalent(parent_of_checkpoint(*run.resume_from), run.checkpoints(), is_new);
    return run;
  }
  claim_run_directory(run, flags, writes);
  const std::optional<CheckpointEntry> newest = newest_checkpoint(run.checkpoints());
  if (!newest && flags.resume) {
    print_message(str("rondo train: ", run.path.string(),
                      " holds no checkpoint yet: training starts from the beginning"));
  }
  if (!newest || (!writes && !flags.resume)) return run;
  if (!flags.resume) {
    throw UsageError(str("--run-dir ", run.path.string(), " already holds a run with checkpoints up to step ",
                         newest->step, "; add --resume to continue it, or give another directory"));
  }
  run.resume_from = checkpoint_to_resume(flags, run.checkpoints());
  run.goes_on = true;
  return run;
}

void RunDirectoryWriter::on_train_begin(Trainer& trainer, const FitOutline& outline) {
  const Context& context = trainer.strategy().context();
  run_agreed(context, [&] {
    if (context.rank() != 0) return;
    std::error_code error;
    // A run that ended before its first checkpoint left rows of the same steps.
    if (!run_.resume_from) fs::remove(run_.metrics(), error);
    write_files();
    if (run_.goes_on) replaced_ = checkpoints_behind(run_, outline.first_step);
  });
  first_step_ = outline.first_step;
  replaces_ = broadcast_object(!replaced_.empty(), context.world()).get<bool>();
}

void RunDirectoryWriter::write_files() const {
  for (const auto& [name, text] : files_) replace_text_file(run_.path / name, text);
}

void RunDirectoryWriter::on_step_complete(Trainer& trainer, const StepRecord&) {
  if (looked_ && Clock::now() - *looked_ < kBetweenLooks) return;
  look_after_directory(trainer.strategy().context());
}

void RunDirectoryWriter::look_after_directory(const Context& context) {
  if (context.rank() != 0) return;
  looked_ = Clock::now();
  std::error_code unknown;
  if (fs::exists(run_.path / kConfiguration, unknown) || unknown) return;
  const bool is_news = !std::exchange(is_lost_, true);
  if (is_news) {
    log::warning("the run directory ", run_.path.string(), " was removed or renamed while training: its ",
                 kConfiguration, " is gone. Further output goes to a new directory of that name");
  }
  try {
    if (run_.lock && !fs::exists(run_.path / RunLock::file_name, unknown))
      run_.lock = std::make_shared<RunLock>(run_.path);
    write_files();
    is_lost_ = false;
  } catch (const UsageError&) {
    throw;  // another training has locked a directory with this name
  } catch (const Error& error) {
    if (is_news) log::warning("cannot recreate the run directory yet: ", error.what());
  }
}

void RunDirectoryWriter::after_save(Trainer& trainer, const fs::path& root) {
  if (!replaces_) return;
  const bool of_training = root == run_.checkpoints();
  if (of_training) {
    bool is_written = false;
    const auto finish = [&] {
      trainer.finish_save();
      is_written = true;
    };
    // A failure at the last check is an error.
    if (ends_) {
      finish();
    } else {
      save_or_warn(trainer, "the checkpoint", finish);
    }
    if (!is_written) return;
  }
  // A newly saved checkpoint belongs to this training.
  const fs::path saved = root / checkpoint_name(trainer.position().step);
  std::erase_if(replaced_, [&](const CheckpointEntry& entry) { return entry.path == saved; });
  if (!of_training) return;
  replaces_ = false;
  if (!replaced_.empty()) remove_replaced();
}

void RunDirectoryWriter::remove_replaced() {
  std::vector<std::string> removed;
  try {
    for (const CheckpointEntry& entry : replaced_) {
      if (!fs::exists(entry.path)) continue;  // a save has removed the checkpoint by --keep-checkpoints
      remove_checkpoint(entry.path);
      removed.push_back(entry.path.lexically_relative(run_.path).string());
    }
  } catch (const std::exception& error) {
    log::warning("a checkpoint after step ", first_step_,
                 ", from which the run resumed, could not be removed: ", error.what());
  }
  if (!removed.empty())
    log::warning("the run resumed from step ", first_step_, ": removed its later checkpoints, ",
                 join(removed, ", "));
}

namespace {

// Returns the step by name, since the checkpoint may be damaged.
std::optional<std::int64_t> step_of_checkpoint(const fs::path& checkpoint) {
  for (const CheckpointEntry& entry : step_directories(parent_of_checkpoint(checkpoint))) {
    if (fs::equivalent(entry.path, checkpoint)) return entry.step;
  }
  return std::nullopt;
}

bool is_in(const fs::path& checkpoint, const fs::path& directory) {
  std::error_code missing;
  return fs::equivalent(parent_of_checkpoint(checkpoint), directory, missing);
}

}  // namespace

void go_on_after_restart(TrainFlags& flags, bool launcher_restarted) {
  const bool is_requeued = env::is_requeued_slurm_job(env::process_environment());
  if ((!launcher_restarted && !is_requeued) || flags.run_dir.empty()) return;
  flags.resume = true;
  const fs::path own = fs::path(flags.run_dir) / "checkpoints";
  if (!flags.resume_from.empty() && !is_in(flags.resume_from, own) && newest_checkpoint(own))
    flags.resume_from.clear();
}

RestartMemory::RestartMemory(const TrainFlags& flags, const TrainingPlace& place, const Context& context) {
  if (place.is_served) return;
  if (!flags.run_dir.empty()) root_ = memory_checkpoint_root(flags.run_dir);
  for (const nlohmann::json& begun : all_gather_object(root_ && fs::exists(*root_), context.world()))
    goes_on_ = goes_on_ || begun.get<bool>();
}

void RestartMemory::check(const TrainFlags& flags, const TrainingPlace& place) const {
  if (flags.memory_checkpoint_every == 0) return;
  const std::string given = str("--memory-checkpoint-every ", flags.memory_checkpoint_every);
  if (place.is_served)
    throw UsageError(str(given, ": with --strategy ", flags.strategy,
                         " the parameter servers hold the state; leave it out"));
  if (flags.average_weights > 0)
    throw UsageError(str(given, ": the average of --ema-decay is on the disk only; leave one of them out"));
  if (flags.run_dir.empty()) throw UsageError(str(given, " needs --run-dir: each attempt must find the run"));
  if (!root_)
    throw UsageError(str(given,
                         " needs a launcher that starts the ranks again: give --max-restarts, here or to "
                         "rondo run"));
}

void RestartMemory::choose(const Context& context, RunDirectory& run) const {
  if (!goes_on_) return;
  for (const nlohmann::json& has : all_gather_object(root_.has_value(), context.world()))
    if (!has.get<bool>()) return;
  // Rank 0's disk decides for all.
  nlohmann::json on_disk;
  if (context.rank() == 0 && run.resume_from) {
    if (const auto step = step_of_checkpoint(*run.resume_from)) on_disk = *step;
  }
  on_disk = broadcast_object(on_disk, context.world());
  const auto checkpoint = newest_memory_checkpoint(
      context, *root_,
      on_disk.is_null() ? std::nullopt : std::optional<std::int64_t>(on_disk.get<std::int64_t>()));
  if (!checkpoint) return;
  run.resume_from = checkpoint;
  if (context.rank() == 0)
    print_message(str("rondo train: resuming from the memory checkpoint ", checkpoint->filename().string()));
}

void RestartMemory::begin() const {
  std::error_code ignored;  // on failure, a restart starts from the beginning
  if (root_) fs::create_directories(*root_, ignored);
}

std::shared_ptr<Callback> RestartMemory::callback(const TrainFlags& flags) const {
  if (flags.memory_checkpoint_every == 0) return nullptr;
  return std::make_shared<MemoryCheckpoint>(
      MemoryCheckpoint::Options{.root = *root_, .every_steps = flags.memory_checkpoint_every});
}

}  // namespace rondo
