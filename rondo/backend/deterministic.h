#pragma once

#include "rondo/base/time.h"
#include "rondo/channel/store.h"

namespace rondo {

// Environment variable behind InitOptions::deterministic: 1, or 0.
inline constexpr const char* kDeterministicVariable = "RONDO_DETERMINISTIC";

// What the environment asks for; false without the variable. Throws UsageError for a value other than 0
// and 1.
bool deterministic_by_environment();

// What holds for a world: rank 0's wish, so that ranks cannot differ. Collective over the store.
bool agree_on_deterministic(bool wish, int rank, int world_size, Store& store, Duration timeout);

}  // namespace rondo
