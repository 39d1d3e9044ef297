#pragma once

#include <array>
#include <string>
#include <string_view>

namespace rondo {

// How a unit's parameters P, gradients G and optimizer state O are kept on N ranks.
enum class Sharding {
  ddp,         // P + G + O on every rank
  zero1,       // P + G + O / N: each rank optimises its shard, then all gather the parameters
  zero2,       // P + (G + O) / N: gradients too are kept for the shard only
  zero3,       // (P + G + O) / N: parameters are gathered for forward and again for backward (FSDP)
  zero3_keep,  // as zero3, but gathered parameters stay from forward to backward
};

inline constexpr std::array kShardings = {Sharding::ddp, Sharding::zero1, Sharding::zero2, Sharding::zero3,
                                          Sharding::zero3_keep};

// "ddp", "zero1", ...
std::string_view name_of(Sharding sharding);
// Reads a name; "fsdp" is zero3. Throws UsageError listing what is allowed; `where` begins the message.
Sharding parse_sharding(std::string_view name, std::string_view where);

// Whether each rank optimises a shard only.
inline bool shards_optimizer(Sharding sharding) { return sharding != Sharding::ddp; }
// Whether parameters are kept as shards between uses.
inline bool shards_parameters(Sharding sharding) {
  return sharding == Sharding::zero3 || sharding == Sharding::zero3_keep;
}

}  // namespace rondo
