#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/options/option_table.h"

namespace rondo {

// Help of --find-unused-parameters, the same for all strategies that have it.
inline constexpr const char* kFindUnusedHelp =
    "Some parameters get no gradient in some steps; without it such a step is an error that names them";

// Help of --codec, the same for all strategies that have it.
inline constexpr const char* kCodecHelp =
    "How gradients travel: none, float16, bfloat16, int8, top_k[:FRACTION]; under ddp and expert also "
    "power_sgd[:rank=R,start=S] or a hook of docs/codecs.md";

// How units travel between hosts, for all strategies that work by unit there.
struct CommunicationOptions {
  std::string schedule = "priority";  // which block is sent first: one of policy_names()
  std::uint64_t schedule_seed = 0;    // random: of the order
  Bytes block_bytes = MiB(4);         // of a unit that travel at a time; 0 is whole units
  Bytes in_flight_bytes = MiB(16);    // under way at a time; 0 is no limit
  Bytes fuse_bytes = {};              // units that are together no larger travel as one; 0 is none
  int prefetch = 2;                   // units gathered ahead of their use, also on one host; 0 is none
};

// Their names on the command line.
OptionsOf<CommunicationOptions> communication_options();

// fifo, priority, random: the policies of a schedule that need no plan.
std::vector<std::string> policy_names();

}  // namespace rondo
