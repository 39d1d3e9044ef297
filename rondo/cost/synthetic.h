#pragma once

#include <cstdint>
#include <string_view>

#include "rondo/cost/profile.h"

namespace rondo::cost {

// A machine that a synthetic profile is made for.
struct SyntheticMachine {
  double flops_per_s = 140e12;  // that a rank reaches in matrix products
  double link_bytes_per_s = 25e9;
  double link_latency_s = 10e-6;
  int ranks = 16;
};

// Parses
// "gpt:layers=48,dim=4096,batch=1,seq=2048,vocab=50304,heads=32,bytes=2,flops=140e12,memory=0,rate=25e9,
// latency=10us" (every key optional, in any order) into the profile of a GPT, one unit a layer, with
// embedding and head counted in the first and last unit when vocab is given. FLOPs and bytes by the formulas
// of docs/planner/profile-file.md; divided among 2, 4, ... ranks as far as these divide the heads. `ranks` is
// what the link is for. Throws UsageError that names what it does not know.
Profile synthetic_profile(std::string_view text, int ranks);

// A profile that tests and the study draw: `units` units of unequal sizes, whose total communication under
// ZeRO-3 takes between 0.5 and 2 times their compute. The same for the same seed, anywhere.
Profile random_profile(std::uint64_t seed, int units, int ranks);

}  // namespace rondo::cost
