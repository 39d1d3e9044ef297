#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rondo/cost/profile.h"

namespace rondo::cost {

// Parses the layers of a profile (docs/planner/profile-file.md). `where` is the prefix of messages, `units`
// are the names of the profile's units. Throws DataError that names the field.
std::vector<LayerProfile> parse_layers(const nlohmann::ordered_json& json, const std::string& where,
                                       const std::vector<std::string>& units);
nlohmann::ordered_json to_json(const std::vector<LayerProfile>& layers);

// Parses a profile; `what` names the source in errors. Throws DataError that names any field that is missing,
// unknown, negative, not finite, not monotone or of the wrong type.
Profile parse_profile(const nlohmann::ordered_json& json, const std::string& what);
Profile read_profile(const std::filesystem::path& path);

// The inverse of parse_profile.
nlohmann::ordered_json to_json(const Profile& profile);

// Returns a hash of the content. Profiles with equal content have equal hashes, regardless of formatting.
std::string profile_hash(const Profile& profile);

}  // namespace rondo::cost
