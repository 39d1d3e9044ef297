#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace rondo {

// The file beside token files that says what they hold.
inline constexpr const char* kTokenDescription = "tokens.json";

// Content of a tokens.json: {format, version, type, vocabulary, end_of_document, tokenizer, documents,
// shards: [{file, tokens}]}.
struct TokenDescription {
  struct Shard {
    std::string file;  // a name in the same folder
    std::int64_t tokens = 0;
  };
  std::string type = "uint16";  // or "uint32", little-endian, without a header
  std::int64_t vocabulary = 0;
  std::optional<std::int64_t> end_of_document = {};  // the token behind every document
  std::string tokenizer = {};                        // what made them, for people
  std::int64_t documents = 0;
  std::vector<Shard> shards = {};  // in their order
};

// Bytes of a token of this type.
std::size_t bytes_per_token(const std::string& type);
// How many different tokens this type holds.
std::int64_t most_tokens(const std::string& type);

nlohmann::ordered_json to_json(const TokenDescription& description);
// Throws DataError naming the file and the entry that is missing or cannot be.
TokenDescription read_token_description(const std::filesystem::path& path);

}  // namespace rondo
