#include "rondo/format/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/format/checksum.h"
#include "rondo/format/file.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view format_name = "rondo-checkpoint";
// Version 2 has tensors in parts: KIND-00001-of-00004.safetensors.
constexpr int kWholeVersion = 1;
constexpr int kPartsVersion = 2;
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

std::string text_of(const Json& value, const char* key, const std::string& where) {
  return json_text(json_member(value, key, where), json_place(where, key));
}

std::uint64_t size_of(const Json& value, const std::string& where) {
  return static_cast<std::uint64_t>(
      json_integer(json_member(value, "bytes", where), json_place(where, "bytes"), 0));
}

FileRecord parse_file(const Json& value, const std::string& where) {
  FileRecord record{
      text_of(value, "name", where), size_of(value, where), text_of(value, "xxh3_128", where), {}};
  if (!is_plain_name(record.name))
    throw DataError(str("'", printable(record.name), "' is not a plain file name"));
  for (const Json& tensor : json_list(json_member(value, "tensors", where), json_place(where, "tensors"))) {
    const std::string of_tensor = str(where, ", tensor ", record.tensors.size());
    record.tensors.push_back({text_of(tensor, "name", of_tensor), size_of(tensor, of_tensor),
                              text_of(tensor, "xxh3_128", of_tensor)});
  }
  if (value.contains("header_xxh3_128")) record.header_checksum = text_of(value, "header_xxh3_128", where);
  return record;
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  Json json;
  json["format"] = format_name;
  const bool has_parts =
      std::any_of(manifest.files.begin(), manifest.files.end(),
                  [](const FileRecord& file) { return file.name.find("-of-") != std::string::npos; });
  json["version"] = has_parts ? kPartsVersion : kWholeVersion;
  json["step"] = manifest.step;
  json["files"] = Json::array();
  for (const FileRecord& file : manifest.files) {
    Json tensors = Json::array();
    for (const TensorRecord& tensor : file.tensors) {
      tensors.push_back({{"name", tensor.name}, {"bytes", tensor.bytes}, {"xxh3_128", tensor.checksum}});
    }
    Json entry{{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.checksum}};
    if (!file.header_checksum.empty()) entry["header_xxh3_128"] = file.header_checksum;
    entry["tensors"] = std::move(tensors);
    json["files"].push_back(std::move(entry));
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
    const bool is_known = json.at("version") == kWholeVersion || json.at("version") == kPartsVersion;
    if (json.at("format") != format_name || !is_known) {
      const bool newer = json.at("version").is_number() && json.at("version") > kPartsVersion;
      throw DataError(str("format ", json.at("format").dump(), " version ", json.at("version").dump(),
                          ", expected \"", format_name, "\" version ", kWholeVersion, " or ", kPartsVersion,
                          newer ? "; a newer rondo has written it" : ""));
    }
    Manifest manifest{json_integer(json.at("step"), "step", 0), {}};
    std::unordered_set<std::string> names;
    for (const Json& value : json_list(json.at("files"), "\"files\"")) {
      manifest.files.push_back(parse_file(value, str("file ", manifest.files.size())));
      if (!names.insert(manifest.files.back().name).second)
        throw DataError(str("file '", printable(manifest.files.back().name), "' is listed twice"));
    }
    return manifest;
  } catch (const Json::exception& e) {
    throw DataError(str(file, ": ", json_problem(e)));
  } catch (const DataError& e) {
    throw DataError(str(file, ": ", e.what()));
  }
}

Manifest read_manifest(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / Manifest::file_name;
  return parse_manifest(read_text_file(path), path.string());
}

}  // namespace rondo
