#include "rondo/data/token_description.h"

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

using TokenJson = nlohmann::ordered_json;

constexpr const char* kTokenFormat = "rondo tokens";
constexpr std::int64_t kTokenFormatVersion = 1;

class DescriptionReader {
 public:
  explicit DescriptionReader(const std::filesystem::path& path)
      : path_(path.string()), document_(read_json_file(path)) {}

  TokenDescription read() const {
    const TokenJson& whole = document_;
    if (!whole.is_object() || text(whole, "format") != kTokenFormat)
      throw DataError(str(path_, ": \"format\" is not \"", kTokenFormat, "\""));
    if (const std::int64_t version = integer(whole, "version", 1); version != kTokenFormatVersion) {
      throw DataError(str(path_, ": version ", version, "; this rondo reads version ", kTokenFormatVersion));
    }
    TokenDescription result;
    result.type = text(whole, "type");
    if (result.type != "uint16" && result.type != "uint32")
      throw DataError(str(path_, ": \"type\" is \"", result.type, "\", expected uint16 or uint32"));
    result.vocabulary = integer(whole, "vocabulary", 1, most_tokens(result.type));
    if (whole.contains("end_of_document") && !whole["end_of_document"].is_null())
      result.end_of_document = integer(whole, "end_of_document", 0, result.vocabulary - 1);
    result.tokenizer = text(whole, "tokenizer");
    result.documents = integer(whole, "documents", 0);
    for (const TokenJson& each : entry(whole, "shards")) {
      const TokenDescription::Shard shard{text(each, "file"), integer(each, "tokens", 0)};
      // A shard lies beside its description, whoever wrote that.
      if (shard.file.empty() || shard.file.find('/') != std::string::npos || shard.file.starts_with('.'))
        throw DataError(str(path_, ": shard '", shard.file, "' is no name of a file in the same folder"));
      result.shards.push_back(shard);
    }
    if (result.shards.empty()) throw DataError(str(path_, ": no shards"));
    return result;
  }

 private:
  const TokenJson& entry(const TokenJson& object, const char* key) const {
    if (object.is_object()) {
      const auto found = object.find(key);
      if (found != object.end()) return *found;
    }
    throw DataError(str(path_, ": \"", key, "\" is missing"));
  }
  std::string text(const TokenJson& object, const char* key) const {
    const TokenJson& value = entry(object, key);
    if (!value.is_string())
      throw DataError(str(path_, ": \"", key, "\" is ", value.dump(), ", expected a text"));
    return value.get<std::string>();
  }
  std::int64_t integer(const TokenJson& object, const char* key, std::int64_t low,
                       std::int64_t high = INT64_MAX) const {
    return json_integer(entry(object, key), str(path_, ": \"", key, "\""), low, high);
  }

  std::string path_;
  TokenJson document_;
};

}  // namespace

std::size_t bytes_per_token(const std::string& type) { return type == "uint16" ? 2 : 4; }

std::int64_t most_tokens(const std::string& type) { return std::int64_t{1} << 8 * bytes_per_token(type); }

nlohmann::ordered_json to_json(const TokenDescription& description) {
  TokenJson shards = TokenJson::array();
  for (const TokenDescription::Shard& shard : description.shards)
    shards.push_back({{"file", shard.file}, {"tokens", shard.tokens}});
  const TokenJson end = description.end_of_document ? TokenJson(*description.end_of_document) : TokenJson();
  return {{"format", kTokenFormat},
          {"version", kTokenFormatVersion},
          {"type", description.type},
          {"vocabulary", description.vocabulary},
          {"end_of_document", end},
          {"tokenizer", description.tokenizer},
          {"documents", description.documents},
          {"shards", std::move(shards)}};
}

TokenDescription read_token_description(const std::filesystem::path& path) {
  return DescriptionReader(path).read();
}

}  // namespace rondo
