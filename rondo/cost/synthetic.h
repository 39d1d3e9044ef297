#pragma once

#include <cstdint>
#include <string_view>

#include "rondo/cost/profile.h"

namespace rondo::cost {

// Default machine of a synthetic profile.
struct SyntheticMachine {
  double flops_per_s = 140e12;  // rate of a rank in matrix products
  double link_bytes_per_s = 25e9;
  double link_latency_s = 10e-6;
  int ranks = 16;
};

// Parses a description such as
// "gpt:layers=48,dim=4096,batch=1,seq=2048,vocab=50304,heads=32,bytes=2,flops=140e12,memory=0,rate=25e9,
// latency=10us"
// into the profile of a GPT with one unit per layer. Every key is optional; keys may be in any order. With
// vocab the embedding and head are part of the first and last unit. docs/planner/profile-file.md has the
// formulas of FLOPs and bytes. Layers are divided among 2, 4, ... ranks as long as these divide the heads.
// `ranks` is the size of the link's group. Throws UsageError that names an unknown key.
Profile synthetic_profile(std::string_view text, int ranks);

// Returns a random profile for tests and studies: `units` units of unequal sizes, whose total communication
// under ZeRO-3 takes between 0.5 and 2 times their compute. Equal seeds give equal profiles on every machine.
Profile random_profile(std::uint64_t seed, int units, int ranks);

}  // namespace rondo::cost
