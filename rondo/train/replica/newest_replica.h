#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "rondo/backend/context.h"

namespace rondo {

// The newest replica below `root` (as ReplicaSaver has it) that the job's hosts have together, and that is of
// a later step than `newer_than`: a checkpoint in this host's memory, whole and with every byte as it was
// written. What a host lacks, or has damaged, another one sends it. Rank 0 says in the log what is damaged or
// missing; a replica that cannot be put together is deleted. Empty when there is none. Collective; throws
// errors of communication only.
std::optional<std::filesystem::path> newest_replica(const Context& context, const std::filesystem::path& root,
                                                    std::optional<std::int64_t> newer_than);

}  // namespace rondo
