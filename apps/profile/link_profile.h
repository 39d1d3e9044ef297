#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "rondo/backend/context.h"
#include "rondo/base/bytes.h"

namespace rondo {

struct LinkProfileOptions {
  Bytes largest = MiB(64);  // whole buffers of collectives, from 4 KiB in steps of four
  int runs = 9;             // of each size; the median counts
};

// Measures collectives among the ranks of `context`: {ranks, collectives {name: [[bytes, seconds]]}}, made
// monotone, as in docs/planner.md. `bytes` is the larger of input and output. `pass` is a training pass
// without communication; how much slower it gets while an all-reduce is under way is `contention`.
// Collective; the same result on all ranks. Throws UsageError for a world of one.
nlohmann::ordered_json profile_link(const Context& context, const LinkProfileOptions& options,
                                    const std::function<void()>& pass);

}  // namespace rondo
