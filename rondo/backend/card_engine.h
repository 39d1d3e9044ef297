#pragma once

#include <string>
#include <vector>

#include "rondo/device/device_choice.h"

namespace rondo {

// Replaces the engine between cards by the one that the shared module at `path` registers under the same name
// (rondo/backend/engine/module.h), for accelerators that libtorch's own engine does not know. Tensors on the
// CPU still go over the engine that auto stands for, and each rank must use a device of its own. Before
// init(). Any thread. Throws UsageError as load_backend does.
void replace_card_engine(const std::string& path);

// Throws UsageError where `engine` is nccl, which takes one rank a card, and ranks share a card. `cards` are
// those of all ranks.
void check_cards(const std::string& engine, const std::vector<RankCard>& cards);

}  // namespace rondo
