#pragma once

#include <string>
#include <vector>

#include "rondo/backend/engine/traits.h"
#include "rondo/device/device_choice.h"

namespace rondo {

// Replaces the engine between cards by the one that the shared module at `path` registers under the same name
// (rondo/backend/engine/module.h), for accelerators that libtorch's own engine does not support. CPU tensors
// still use the engine that "auto" selects, and each rank must use a device of its own. Call it before
// init(). Any thread. Throws UsageError as load_backend does.
void replace_card_engine(const std::string& path);

// Throws UsageError if `engine` is nccl, which needs one card for each rank, and ranks share a card. `cards`
// holds the cards of all ranks.
void check_cards(const std::string& engine, const std::vector<RankCard>& cards);

// Throws UsageError if `engine`, which has these traits, does not take tensors on the rank's device.
void check_device_tensors(const std::string& engine, const EngineTraits& traits, c10::Device device);

}  // namespace rondo
