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

// What a document is in a file.
enum class DocumentForm { file, line, json_line };

// One document; a view of its file, which lives as long as it, or a text of its own.
struct Document {
  std::shared_ptr<const MappedInput> file;
  std::string_view view;
  std::string text = {};  // of JSON lines, whose texts are written with escapes
  std::string_view content() const { return text.empty() ? view : std::string_view(text); }
};

// Gives every document of `files` to `take`, in their order; empty ones are passed over. `field` is that of
// JSON lines. Throws DataError naming file and line for a line that is no JSON object with a text in `field`.
void for_each_document(const std::vector<std::string>& files, DocumentForm form, const std::string& field,
                       const std::function<void(Document)>& take);

// Writes documents as shards of a folder, in their order. A document may go on in the next shard: readers
// see one long run.
class ShardWriter {
 public:
  // `folder` is made; throws UsageError when it is there and holds something. `description` says how tokens
  // are stored; its documents and shards are filled in here. Shards have at most `tokens_per_shard` tokens.
  ShardWriter(std::filesystem::path folder, TokenDescription description, std::int64_t tokens_per_shard);
  // Adds a document, and behind it the token that ends it.
  void add(std::span<const std::int32_t> tokens);
  // To the disk, with the description last. Returns what it says.
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
  std::unique_ptr<OutputFile> file_;  // of the last shard
  std::string buffer_;                // of it, not written yet
};

}  // namespace rondo
