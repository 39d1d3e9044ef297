#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rondo/cost/layers.h"

namespace rondo::cost {

// The layers of a profile, as docs/planner.md describes them; `where` begins the messages. Throws DataError
// naming the field. `units` are the names of the profile's units.
std::vector<LayerProfile> parse_layers(const nlohmann::ordered_json& json, const std::string& where,
                                       const std::vector<std::string>& units);
nlohmann::ordered_json to_json(const std::vector<LayerProfile>& layers);

}  // namespace rondo::cost
