#pragma once

#include <string>
#include <vector>

#include "rondo/device/rank_cards.h"

namespace rondo {

// Throws UsageError where `engine` is nccl, which takes one rank a card, and ranks share a card. `cards` are
// those of all ranks.
void check_cards(const std::string& engine, const std::vector<RankCard>& cards);

}  // namespace rondo
