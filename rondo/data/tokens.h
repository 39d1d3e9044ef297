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

// A long sequence of tokens, independent of its storage. Concurrent reads are safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::int64_t size() const = 0;        // number of tokens
  virtual std::int64_t vocabulary() const = 0;  // number of different tokens
  // Copies the tokens from `offset` on. offset + tokens.size() must be at most size(). Throws DataError for a
  // token beyond the vocabulary.
  virtual void read(std::int64_t offset, std::span<std::int64_t> tokens) const = 0;
  // Returns the first token of each file, then size(). A file without tokens has the same start as the next
  // one.
  virtual std::vector<std::int64_t> file_starts() const = 0;
};

// Division of a source into samples, and their description.
struct WindowForm {
  std::string kind;          // kind of the data, as in data_kinds()
  std::string source;        // path that was opened
  std::int64_t context = 0;  // number of tokens of a sample
  // Token after every document, if the token following it is not to be predicted: that target is -100, which
  // losses ignore.
  std::optional<std::int64_t> end_of_document = {};
};

// A data set of consecutive windows of a token range. Sample i is the `context` tokens from i * context on;
// its targets are the next token of each. An epoch therefore predicts every token but the first once (except
// in a tail that does not fill a window).
class TokenWindows final : public Dataset, public DataFiles {
 public:
  // Uses the tokens [begin, end) of `tokens`. Throws DataError if they are fewer than context + 1.
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

// Returns training and validation windows of a source. Validation is the tail: `fraction` of the tokens and
// at least one window, or nothing for 0. `unit` names tokens in errors: "bytes". Throws UsageError for an
// invalid context or fraction, and DataError for a source that is too short.
OpenedData open_windows(const std::shared_ptr<const TokenSource>& tokens, const WindowForm& form,
                        double fraction, const std::string& unit);

// Name of the file that describes the token files in its folder.
inline constexpr const char* kTokenDescription = "tokens.json";

// Content of a tokens.json: {format, version, type, vocabulary, end_of_document, tokenizer, documents,
// shards: [{file, tokens}]}.
struct TokenDescription {
  struct Shard {
    std::string file;  // name of a file in the same folder
    std::int64_t tokens = 0;
  };
  std::string type = "uint16";  // or "uint32", little-endian, without a header
  std::int64_t vocabulary = 0;
  std::optional<std::int64_t> end_of_document = {};  // token after every document
  std::string tokenizer = {};                        // description of the tokenizer, for people
  std::int64_t documents = 0;
  std::vector<Shard> shards = {};  // in reading order
};

// Returns the bytes per token of this type.
std::size_t bytes_per_token(const std::string& type);
// Returns the number of different tokens that this type can represent.
std::int64_t most_tokens(const std::string& type);

nlohmann::ordered_json to_json(const TokenDescription& description);
// Throws DataError naming the file and the entry that is missing or invalid.
TokenDescription read_token_description(const std::filesystem::path& path);

// Token files (uint16 or uint32, little-endian, without a header, as written by `rondo tokenize`, nanoGPT and
// Megatron's .bin), read as one long sequence. The files are mapped: a corpus may be larger than memory, and
// the ranks of a host share it.
class TokenFiles final : public TokenSource {
 public:
  // Throws DataError for a file that cannot be read, ends inside a token, clearly has wider tokens, or has a
  // token beyond the vocabulary among its first 65,536 tokens; also if all files are empty.
  TokenFiles(const std::vector<std::string>& paths, const std::string& type, std::int64_t vocabulary);
  std::int64_t size() const override { return starts_.back(); }
  std::int64_t vocabulary() const override { return vocabulary_; }
  void read(std::int64_t offset, std::span<std::int64_t> tokens) const override;
  std::vector<std::int64_t> file_starts() const override { return starts_; }

 private:
  std::vector<MappedInput> files_;
  std::vector<std::int64_t> starts_;  // first token of each file, then the end of the last
  std::size_t width_;                 // bytes per token
  std::int64_t vocabulary_;
};

}  // namespace rondo
