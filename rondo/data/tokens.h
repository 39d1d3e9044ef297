#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rondo/data/data_files.h"
#include "rondo/data/dataset.h"
#include "rondo/data/open.h"
#include "rondo/data/token_options.h"

namespace rondo {

// One long run of tokens, whatever they lie in. Any thread may read.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::int64_t size() const = 0;        // tokens
  virtual std::int64_t vocabulary() const = 0;  // different tokens
  // Copies the tokens from `offset` on. offset + tokens.size() must be at most size(). Throws DataError for a
  // token beyond the vocabulary.
  virtual void read(std::int64_t offset, std::span<std::int64_t> tokens) const = 0;
  // The first token of each file, and size(): files without a token begin where the next one does.
  virtual std::vector<std::int64_t> file_starts() const = 0;
};

// How a source is cut into samples, and what these are called.
struct WindowForm {
  std::string kind;          // of the data, as in data_kinds()
  std::string source;        // the path that was opened
  std::int64_t context = 0;  // tokens of a sample
  // The token behind every document, where what follows it is not to be predicted from it: that target is
  // -100, which no loss counts.
  std::optional<std::int64_t> end_of_document = {};
};

// A stretch of a source cut into windows that follow each other: sample i is the `context` tokens from i *
// context on, its targets the token after each, so over an epoch every token but the first is predicted once
// (the tail that does not fill a window is left out).
class TokenWindows final : public Dataset, public DataFiles {
 public:
  // The tokens [begin, end) of `tokens`. Throws DataError when they are fewer than context + 1.
  TokenWindows(std::shared_ptr<const TokenSource> tokens, std::int64_t begin, std::int64_t end,
               const WindowForm& form);
  std::int64_t size() const override { return (end_ - begin_ - 1) / info_.targets_per_sample; }
  Batch get(std::span<const std::int64_t> indices) const override;
  const DatasetInfo& info() const override { return info_; }
  std::vector<std::int64_t> file_starts() const override;

 private:
  std::shared_ptr<const TokenSource> tokens_;
  std::int64_t begin_;
  std::int64_t end_;
  std::optional<std::int64_t> end_of_document_;
  DatasetInfo info_;
};

// Training and validation windows of a source: validation is its tail, `fraction` of its tokens and at least
// one window, or nothing for 0. `unit` names tokens in errors: "bytes". Throws UsageError for a context or a
// fraction that cannot be, DataError for a source that is too short.
OpenedData open_windows(const std::shared_ptr<const TokenSource>& tokens, const WindowForm& form,
                        double fraction, const std::string& unit);

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

// Files of tokens (uint16 or uint32, little-endian, without a header: what `rondo tokenize`, nanoGPT and
// Megatron's .bin hold) read as one long run. They are mapped: a corpus may be larger than memory, and the
// ranks of a host share it.
class TokenFiles final : public TokenSource {
 public:
  // Throws DataError for a file that cannot be read, ends within a token, is plainly of wider tokens, or has
  // a token beyond the vocabulary among its first 65,536, and when all are empty.
  TokenFiles(const std::vector<std::string>& paths, const std::string& type, std::int64_t vocabulary);
  std::int64_t size() const override { return starts_.back(); }
  std::int64_t vocabulary() const override { return vocabulary_; }
  void read(std::int64_t offset, std::span<std::int64_t> tokens) const override;
  std::vector<std::int64_t> file_starts() const override { return starts_; }

 private:
  std::vector<MappedInput> files_;
  std::vector<std::int64_t> starts_;  // of each file, in tokens, and the end of the last
  std::size_t width_;                 // bytes of a token
  std::int64_t vocabulary_;
};

}  // namespace rondo
