#include "apps/train/run_directory.h"

#include <array>
#include <ctime>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/format/file.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

fs::path default_path(const std::string& model) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d-%H%M%S", &parts);
  return fs::path("runs") / str(text.data(), "-", model);
}

// The run directory that a checkpoint lies in (RUN/checkpoints/step-N), or that `path` is.
std::optional<fs::path> run_of(const fs::path& path) {
  for (const fs::path& candidate : {path, path.parent_path().parent_path()}) {
    if (!candidate.empty() && fs::exists(candidate / "config.json")) return candidate;
  }
  return std::nullopt;
}

}  // namespace

RunDirectory find_run_directory(const TrainFlags& flags) {
  RunDirectory run;
  run.path = flags.run_dir;
  if (!flags.resume_from.empty()) {
    run.resume_from = find_checkpoint(flags.resume_from);
    if (run.path.empty()) run.path = run_of(*run.resume_from).value_or(default_path(flags.model));
    return run;
  }
  if (run.path.empty()) run.path = default_path(flags.model);
  const std::optional<CheckpointEntry> newest = newest_checkpoint(run.checkpoints());
  if (flags.resume) {
    if (!fs::is_directory(run.path))
      throw UsageError(str("--resume: there is no run directory ", run.path.string()));
    if (newest) run.resume_from = newest->path;
  } else if (newest) {
    throw UsageError(str("--run-dir ", run.path.string(), " already holds a run with checkpoints up to step ",
                         newest->step, "; add --resume to continue it, or give another directory"));
  }
  return run;
}

void prepare_run_directory(const RunDirectory& run, const nlohmann::ordered_json& configuration) {
  std::error_code error;
  fs::create_directories(run.path, error);
  if (error) throw Error(str("cannot make the run directory ", run.path.string(), ": ", error.message()));
  if (!run.resume_from) {
    // A run that ended before its first checkpoint left rows of the same steps.
    fs::remove(run.metrics(), error);
  }
  replace_text_file(run.path / "config.json", configuration.dump(2) + "\n");
}

}  // namespace rondo
