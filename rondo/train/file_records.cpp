#include "rondo/train/file_records.h"

#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo {

nlohmann::json to_json(const std::vector<FileRecord>& records) {
  nlohmann::json list = nlohmann::json::array();
  for (const FileRecord& file : records) {
    nlohmann::json tensors = nlohmann::json::array();
    for (const TensorRecord& tensor : file.tensors)
      tensors.push_back({tensor.name, tensor.bytes, tensor.checksum});
    list.push_back({file.name, file.bytes, file.checksum, std::move(tensors), file.header_checksum});
  }
  return list;
}

std::vector<FileRecord> parse_file_records(const nlohmann::json& list) {
  const std::string where = "the records of files";
  // Checks the number of an entry's fields, which are in the order of to_json().
  const auto fields = [&](const nlohmann::json& entry, std::size_t count) -> const nlohmann::json& {
    if (json_list(entry, where).size() != count)
      throw DataError(str(where, ": an entry has ", entry.size(), " fields, expected ", count));
    return entry;
  };
  const auto text = [&](const nlohmann::json& value) { return json_text(value, where); };
  const auto bytes = [&](const nlohmann::json& value) {
    return static_cast<std::uint64_t>(json_integer(value, where, 0));
  };
  std::vector<FileRecord> records;
  for (const nlohmann::json& entry : json_list(list, where)) {
    const nlohmann::json& file = fields(entry, 5);
    FileRecord result{text(file[0]), bytes(file[1]), text(file[2]), {}, text(file[4])};
    for (const nlohmann::json& each : json_list(file[3], where)) {
      const nlohmann::json& tensor = fields(each, 3);
      result.tensors.push_back({text(tensor[0]), bytes(tensor[1]), text(tensor[2])});
    }
    records.push_back(std::move(result));
  }
  return records;
}

}  // namespace rondo
