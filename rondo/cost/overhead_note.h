#pragma once

#include <optional>
#include <string>

#include "rondo/cost/profile.h"

namespace rondo::cost {

// What a plan has to say of Profile::overhead_s, which is counted once a step, where a step computes so many
// micro-batches: each has a part of it, which was not measured. Nothing with one, or without an overhead.
std::optional<std::string> overhead_note(const Profile& profile, int micro_batches);

}  // namespace rondo::cost
