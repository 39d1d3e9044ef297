#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "rondo/format/checksum.h"

namespace rondo {

// A manifest's records as ranks tell each other.
nlohmann::json to_json(const std::vector<FileRecord>& records);
std::vector<FileRecord> parse_file_records(const nlohmann::json& records);

}  // namespace rondo
