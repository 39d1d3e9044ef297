#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/backend/engine/engine_text.h"
#include "rondo/base/bytes.h"
#include "rondo/options/option_table.h"

namespace rondo {

// Help text of --find-unused-parameters, shared by all strategies with that option.
inline constexpr const char* kFindUnusedHelp =
    "Allow parameters without a gradient; otherwise they are an error that names them";

// Help text of --codec, shared by all strategies with that option.
inline constexpr const char* kCodecHelp =
    "Codec of gradients: none, float16, bfloat16, int8, top_k[:FRACTION]; ddp, expert: also "
    "power_sgd[:rank=R,start=S], hooks (docs/codecs.md)";

// Options of the communication between hosts, for all strategies that work by unit there.
struct CommunicationOptions {
  std::string schedule = "priority";  // order of segments: one of policy_names()
  std::uint64_t schedule_seed = 0;    // seed of schedule "random"
  Bytes segment_bytes = MiB(4);       // size of the segments that a unit is cut into; 0 sends whole units
  Bytes in_flight_bytes = MiB(16);    // limit of bytes in flight; 0 is no limit
  Bytes fuse_bytes = {};  // units up to this total size are sent together; 0: units are never fused
  int prefetch = 2;       // number of units gathered ahead of their use, also on one host; 0 is none
};

// Returns the table of their names on the command line.
OptionsOf<CommunicationOptions> communication_options();

// Returns fifo, priority, random: the policies of a schedule that need no plan.
std::vector<std::string> policy_names();

}  // namespace rondo
