#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "rondo/format/checksum.h"

namespace rondo {

// Converts a manifest's records for exchange between ranks.
nlohmann::json to_json(const std::vector<FileRecord>& records);
std::vector<FileRecord> parse_file_records(const nlohmann::json& records);

}  // namespace rondo
