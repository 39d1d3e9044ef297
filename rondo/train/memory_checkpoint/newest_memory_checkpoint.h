#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "rondo/backend/context.h"

namespace rondo {

// Returns the newest memory checkpoint below `root` (see MemoryCheckpointSaver) that the job's hosts hold
// together and whose step is after `newer_than`: a checkpoint in this host's memory, complete and intact.
// Hosts send each other missing and damaged parts. Rank 0 logs damage and missing files; a memory checkpoint
// that cannot be assembled is deleted. Empty if there is none. Collective; throws communication errors only.
std::optional<std::filesystem::path> newest_memory_checkpoint(const Context& context,
                                                              const std::filesystem::path& root,
                                                              std::optional<std::int64_t> newer_than);

}  // namespace rondo
