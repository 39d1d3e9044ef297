#pragma once

#include <nlohmann/json.hpp>

#include "rondo/nn/shard.h"

namespace rondo {

// A shard's address as JSON: {"name", "full", "offsets", "sizes"}, and "within" and "blocks" where they say
// something. What ranks tell each other, and what files of pieces hold.
nlohmann::json address_to_json(const Shard& shard);
// The address alone; further keys are passed over. Throws DataError naming a key that is missing or of
// another type.
Shard address_from_json(const nlohmann::json& address);

}  // namespace rondo
