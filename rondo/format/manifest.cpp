#include "rondo/format/manifest.h"

#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/checksum.h"
#include "rondo/format/file.h"
#include "rondo/format/json_strict.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view format_name = "rondo-checkpoint";
constexpr int format_version = 1;
constexpr std::size_t checksum_digits = 32;

// The checksum is the last member, so its digits stand at a fixed distance from the end of the text.
constexpr std::string_view text_end = "\"\n}\n";

std::string sealed(std::string text) {
  const std::size_t at = text.size() - text_end.size() - checksum_digits;
  return text.replace(at, checksum_digits, checksum_hex(as_bytes(text)));
}

// A file name must stay inside the checkpoint directory whatever a manifest says.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name != Manifest::file_name;
}

FileRecord parse_file(const Json& value) {
  FileRecord record{value.at("name").get<std::string>(),
                    value.at("bytes").get<std::uint64_t>(),
                    value.at("xxh3_128").get<std::string>(),
                    {}};
  if (!is_plain_name(record.name)) throw DataError(str("'", record.name, "' is not a plain file name"));
  for (const Json& tensor : value.at("tensors")) {
    record.tensors.push_back({tensor.at("name").get<std::string>(), tensor.at("bytes").get<std::uint64_t>(),
                              tensor.at("xxh3_128").get<std::string>()});
  }
  return record;
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  Json json;
  json["format"] = format_name;
  json["version"] = format_version;
  json["step"] = manifest.step;
  json["files"] = Json::array();
  for (const FileRecord& file : manifest.files) {
    Json tensors = Json::array();
    for (const TensorRecord& tensor : file.tensors) {
      tensors.push_back({{"name", tensor.name}, {"bytes", tensor.bytes}, {"xxh3_128", tensor.checksum}});
    }
    json["files"].push_back({{"name", file.name},
                             {"bytes", file.bytes},
                             {"xxh3_128", file.checksum},
                             {"tensors", std::move(tensors)}});
  }
  json["checksum"] = std::string(checksum_digits, '0');
  return sealed(json.dump(1) + "\n");
}

Manifest parse_manifest(std::string_view text, const std::string& file) {
  std::string zeroed(text);
  if (!text.ends_with(text_end) || text.size() < text_end.size() + checksum_digits) {
    throw DataError(str(file, ": does not end as a manifest does (truncated?)"));
  }
  const std::size_t at = text.size() - text_end.size() - checksum_digits;
  zeroed.replace(at, checksum_digits, checksum_digits, '0');
  if (sealed(zeroed) != text) {
    throw DataError(str(file, ": its own checksum is ", text.substr(at, checksum_digits),
                        ", its text gives another one: the manifest is damaged"));
  }
  const Json json = parse_json_strict(text, file);
  try {
    if (json.at("format") != format_name || json.at("version") != format_version) {
      throw DataError(str("format ", json.at("format").dump(), " version ", json.at("version").dump(),
                          ", expected \"", format_name, "\" version ", format_version));
    }
    Manifest manifest{json.at("step").get<std::int64_t>(), {}};
    for (const Json& value : json.at("files")) manifest.files.push_back(parse_file(value));
    return manifest;
  } catch (const Json::exception& e) {
    throw DataError(str(file, ": ", e.what()));
  } catch (const DataError& e) {
    throw DataError(str(file, ": ", e.what()));
  }
}

Manifest read_manifest(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / Manifest::file_name;
  return parse_manifest(read_text_file(path), path.string());
}

}  // namespace rondo
