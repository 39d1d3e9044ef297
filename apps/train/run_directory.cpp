#include "apps/train/run_directory.h"

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/format/checkpoint_choice.h"
#include "rondo/format/file.h"
#include "rondo/train/agreement.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// The run directory that a checkpoint lies in (RUN/checkpoints/step-N), or that `path` is.
std::optional<fs::path> run_of(const fs::path& path) {
  for (const fs::path& candidate : {path, path.parent_path().parent_path()}) {
    if (!candidate.empty() && fs::exists(candidate / "config.json")) return candidate;
  }
  return std::nullopt;
}

// The newest checkpoint of `path` whatever its state (who reads it verifies it), or with --resume-intact the
// newest one without damage.
fs::path checkpoint_to_resume(const TrainFlags& flags, const fs::path& path) {
  fs::path newest = find_checkpoint(path);
  if (!flags.resume_intact) return newest;
  const IntactCheckpoint found = newest_intact_checkpoint(parent_of_checkpoint(newest));
  for (const IntactCheckpoint::Damaged& damaged : found.passed_over)
    log::warning("passing over ", damaged.entry.path.string(),
                 ", which is damaged: ", describe(damaged.damage));
  if (!found.newest)
    throw DataError(str("--resume-intact: none of the checkpoints in ", parent_of_checkpoint(newest).string(),
                        " is intact"));
  return found.newest->path;
}

// For this run; `writes` as in find_run_directory().
void claim_run_directory(RunDirectory& run, const TrainFlags& flags, bool writes) {
  if (!writes) {
    if (run.path.empty()) run.path = default_run_directory(flags.model);
    return;
  }
  if (run.path.empty()) {
    run.made = std::make_shared<NewRunDirectory>(flags.model);
    run.path = run.made->path();
  }
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
    return run;
  }
  if (flags.resume && !fs::is_directory(run.path))
    throw UsageError(str("--resume: there is no run directory ", run.path.string()));
  claim_run_directory(run, flags, writes);
  const std::optional<CheckpointEntry> newest = newest_checkpoint(run.checkpoints());
  if (!newest || (!writes && !flags.resume)) return run;
  if (!flags.resume) {
    throw UsageError(str("--run-dir ", run.path.string(), " already holds a run with checkpoints up to step ",
                         newest->step, "; add --resume to continue it, or give another directory"));
  }
  run.resume_from = checkpoint_to_resume(flags, run.checkpoints());
  return run;
}

void RunDirectoryWriter::on_train_begin(Trainer& trainer, const FitOutline&) {
  const Context& context = trainer.strategy().context();
  run_agreed(context, [&] {
    if (context.rank() != 0) return;
    std::error_code error;
    // A run that ended before its first checkpoint left rows of the same steps.
    if (!run_.resume_from) fs::remove(run_.metrics(), error);
    for (const auto& [name, text] : files_) replace_text_file(run_.path / name, text);
  });
}

}  // namespace rondo
