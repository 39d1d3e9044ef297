#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "rondo/cost/profile.h"

namespace rondo::cost {

// Reads a profile; `what` names the text in errors. Throws DataError that names the field for whatever is
// missing, unknown, of another type, negative, not finite or not monotone.
Profile parse_profile(const nlohmann::ordered_json& json, const std::string& what);
Profile read_profile(const std::filesystem::path& path);

// The inverse of parse_profile.
nlohmann::ordered_json to_json(const Profile& profile);

// Names the content of a profile: equal for profiles that read equal, however they were written.
std::string profile_hash(const Profile& profile);

}  // namespace rondo::cost
