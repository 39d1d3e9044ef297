#pragma once

#include <filesystem>
#include <optional>

namespace rondo {

// Returns the directory on this host for the memory checkpoints of a training into `run_directory`: in the
// memory that the job's launcher keeps (RONDO_JOB_MEMORY), with a subdirectory for each value of RONDO_HOST.
// Empty without such a launcher.
std::optional<std::filesystem::path> memory_checkpoint_root(const std::filesystem::path& run_directory);

}  // namespace rondo
