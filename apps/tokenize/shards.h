#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/data_files.h"
#include "rondo/data/tokens.h"
#include "rondo/format/file.h"

namespace rondo {

// The extent of a document in a file.
enum class DocumentForm { file, line, json_line };

// A document: a view of its file, whose lifetime it shares, or a text of its own.
struct Document {
  std::shared_ptr<const MappedInput> file;
  std::string_view view;
  std::string text = {};  // for JSON lines, whose texts are unescaped
  std::string_view content() const { return text.empty() ? view : std::string_view(text); }
};

// Passes every document of `files` to `take`, in order; skips empty ones. `field` is for JSON lines. Throws
// DataError naming file and line for a line that is not a JSON object with a text in `field`.
void for_each_document(const std::vector<std::string>& files, DocumentForm form, const std::string& field,
                       const std::function<void(Document)>& take);

// Writes documents, in order, as shards of a folder. A document may continue in the next shard: readers see
// one long sequence.
class ShardWriter {
 public:
  // Creates `folder`; throws UsageError if it exists and is not empty. `description` says how tokens are
  // stored; ShardWriter sets its documents and shards. Shards have at most `tokens_per_shard` tokens.
  ShardWriter(std::filesystem::path folder, TokenDescription description, std::int64_t tokens_per_shard);
  // Adds a document, followed by its end token.
  void add(std::span<const std::int32_t> tokens);
  // Syncs everything to disk, with the description last. Returns the description.
  const TokenDescription& finish();
  std::int64_t tokens() const { return tokens_; }  // written so far

 private:
  void append(std::span<const std::int32_t> tokens);
  void write_buffer();
  void close_shard();

  std::filesystem::path folder_;
  TokenDescription description_;
  std::int64_t tokens_per_shard_;
  std::int64_t tokens_ = 0;
  std::unique_ptr<OutputFile> file_;  // current shard
  std::string buffer_;                // data of the current shard not yet written
};

}  // namespace rondo
