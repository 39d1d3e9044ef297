#pragma once

#include <filesystem>
#include <optional>

namespace rondo {

// Where the replicas of a training into `run_directory` lie on this host: in the memory that the job's
// launcher keeps (RONDO_JOB_MEMORY), apart for hosts that RONDO_HOST tells apart. Empty where no launcher
// keeps any.
std::optional<std::filesystem::path> replica_root(const std::filesystem::path& run_directory);

}  // namespace rondo
