#pragma once

#include <array>
#include <compare>
#include <string>
#include <string_view>

namespace rondo::cost {

// How one unit's parameters, gradients and optimizer state lie on the ranks of a shard group.
enum class Strategy {
  ddp,         // everything on every rank; gradients all-reduced
  zero1,       // optimizer state sharded
  zero2,       // and gradients
  zero3,       // and parameters, gathered for forward and again for backward
  zero3_keep,  // as zero3, but gathered once and kept from forward to backward
};

inline constexpr std::array kStrategies{Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3,
                                        Strategy::zero3_keep};

// "ddp", "zero1", "zero2", "zero3", "zero3_keep".
std::string_view name(Strategy strategy);
// "fsdp" is zero3. Throws UsageError that lists what there is; `what` says where the text came from.
Strategy parse_strategy(std::string_view text, std::string_view what);

constexpr bool shards_parameters(Strategy s) { return s == Strategy::zero3 || s == Strategy::zero3_keep; }
constexpr bool shards_gradients(Strategy s) { return s == Strategy::zero2 || shards_parameters(s); }
constexpr bool shards_optimizer(Strategy s) { return s != Strategy::ddp; }

// What a plan decides for one unit.
struct UnitChoice {
  Strategy strategy = Strategy::ddp;
  bool checkpoint = false;  // activations are computed again in backward
  auto operator<=>(const UnitChoice&) const = default;
};

// "zero3", "zero3 + checkpoint".
std::string describe(UnitChoice choice);

}  // namespace rondo::cost
