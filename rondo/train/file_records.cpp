#include "rondo/train/file_records.h"

#include <utility>

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
  std::vector<FileRecord> records;
  for (const nlohmann::json& file : list) {
    FileRecord result{file.at(0), file.at(1), file.at(2), {}, file.at(4)};
    for (const nlohmann::json& tensor : file.at(3))
      result.tensors.push_back({tensor.at(0), tensor.at(1), tensor.at(2)});
    records.push_back(std::move(result));
  }
  return records;
}

}  // namespace rondo
