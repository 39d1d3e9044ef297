#include "apps/train/restart.h"

#include <cstdio>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/environment.h"
#include "rondo/env/sources/slurm.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/train/replica/memory_replica.h"
#include "rondo/train/replica/newest_replica.h"
#include "rondo/train/replica/replica_root.h"

namespace rondo {
namespace fs = std::filesystem;
namespace {

// By its name, since it may be damaged.
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
  if (!flags.run_dir.empty()) root_ = replica_root(flags.run_dir);
  for (const nlohmann::json& begun : all_gather_object(root_ && fs::exists(*root_), context.world()))
    goes_on_ = goes_on_ || begun.get<bool>();
}

void RestartMemory::check(const TrainFlags& flags, const TrainingPlace& place) const {
  if (flags.replica_every == 0) return;
  const std::string given = str("--replica-every ", flags.replica_every);
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
  const auto replica = newest_replica(
      context, *root_,
      on_disk.is_null() ? std::nullopt : std::optional<std::int64_t>(on_disk.get<std::int64_t>()));
  if (!replica) return;
  run.resume_from = replica;
  if (context.rank() == 0)
    std::fprintf(stderr, "rondo train: going on from the replica in memory, %s\n",
                 replica->filename().c_str());
}

void RestartMemory::begin() const {
  std::error_code ignored;  // without it a restart is one of before
  if (root_) fs::create_directories(*root_, ignored);
}

std::shared_ptr<Callback> RestartMemory::callback(const TrainFlags& flags) const {
  if (flags.replica_every == 0) return nullptr;
  return std::make_shared<MemoryReplica>(
      MemoryReplica::Options{.root = *root_, .every_steps = flags.replica_every});
}

}  // namespace rondo
