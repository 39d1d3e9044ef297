#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rondo/cost/profile.h"

namespace rondo::cost {

// The layers of a profile, as docs/planner/profile-file.md describes them; `where` begins the messages.
// Throws DataError naming the field. `units` are the names of the profile's units.
std::vector<LayerProfile> parse_layers(const nlohmann::ordered_json& json, const std::string& where,
                                       const std::vector<std::string>& units);
nlohmann::ordered_json to_json(const std::vector<LayerProfile>& layers);

// Reads a profile; `what` names the text in errors. Throws DataError that names the field for whatever is
// missing, unknown, of another type, negative, not finite or not monotone.
Profile parse_profile(const nlohmann::ordered_json& json, const std::string& what);
Profile read_profile(const std::filesystem::path& path);

// The inverse of parse_profile.
nlohmann::ordered_json to_json(const Profile& profile);

// Names the content of a profile: equal for profiles that read equal, however they were written.
std::string profile_hash(const Profile& profile);

}  // namespace rondo::cost
