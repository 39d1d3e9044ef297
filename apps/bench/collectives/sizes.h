#pragma once

#include <string>
#include <vector>

#include "rondo/base/bytes.h"

namespace rondo::bench {

// "4B..64MiB" gives every power of four times the first size up to the last, which is included; "4B,25MiB"
// those sizes. Both forms mix: "4B..1MiB,25MiB". Throws UsageError that names --sizes.
std::vector<Bytes> parse_sizes(const std::string& text);

}  // namespace rondo::bench
