#pragma once

#include <array>
#include <compare>
#include <string>
#include <string_view>

namespace rondo::cost {

// Placement of one unit's parameters, gradients and optimizer state on the ranks of a shard group.
enum class Strategy {
  ddp,         // everything on every rank; gradients all-reduced
  zero1,       // shards optimizer state
  zero2,       // shards gradients, too
  zero3,       // shards parameters, too; gathered for forward and again for backward
  zero3_keep,  // as zero3, but gathered once and kept from forward to backward
};

inline constexpr std::array kStrategies{Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3,
                                        Strategy::zero3_keep};

// Returns "ddp", "zero1", "zero2", "zero3" or "zero3_keep".
std::string_view name(Strategy strategy);
// Parses a strategy; "fsdp" is zero3. Throws UsageError that lists the names; `what` says where the text came
// from.
Strategy parse_strategy(std::string_view text, std::string_view what);

constexpr bool shards_parameters(Strategy s) { return s == Strategy::zero3 || s == Strategy::zero3_keep; }
constexpr bool shards_gradients(Strategy s) { return s == Strategy::zero2 || shards_parameters(s); }
constexpr bool shards_optimizer(Strategy s) { return s != Strategy::ddp; }

// The planned choice of one unit.
struct UnitChoice {
  Strategy strategy = Strategy::ddp;
  bool checkpoint = false;  // activations are recomputed in backward
  auto operator<=>(const UnitChoice&) const = default;
};

// Returns "zero3" or "zero3 + checkpoint".
std::string describe(UnitChoice choice);

}  // namespace rondo::cost
