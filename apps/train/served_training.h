#pragma once

#include <nlohmann/json.hpp>

#include "rondo/strategy/strategy.h"

namespace rondo {

// What servers say of their workers, for the result: null for other strategies.
nlohmann::ordered_json served_summary(const Strategy& strategy);

}  // namespace rondo
