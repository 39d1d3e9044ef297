#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/data_files.h"
#include "rondo/data/open.h"
#include "rondo/data/text_options.h"
#include "rondo/data/tokens.h"

namespace rondo {

// Returns whether content that starts with `head` is text: it has no zero byte (git's rule).
bool looks_like_text(std::string_view head);

// Returns the files to read as one text: `path` itself if it is a file. For a directory, every non-empty file
// below it, sorted by path, that looks like text or, if `extensions` is not empty, has one of these
// extensions. Skips hidden files and directories (".git") and linked directories. Throws DataError if there
// is none, listing the files found instead.
std::vector<std::string> find_text_files(const std::string& path, const std::vector<std::string>& extensions);

class BytePairs;

// Files read as one long text in the given order: as bytes without a copy, or with a tokenizer as tokens that
// take 4 bytes of memory each. Concurrent reads are safe.
class TextCorpus final : public TokenSource {
 public:
  // `tokenizer` may be null. Throws DataError if a file cannot be read or all are empty.
  explicit TextCorpus(const std::vector<std::string>& paths, const BytePairs* tokenizer = nullptr);
  std::int64_t size() const override { return static_cast<std::int64_t>(starts_.back()); }
  std::int64_t vocabulary() const override { return vocabulary_; }  // 256 for bytes
  void read(std::int64_t offset, std::span<std::int64_t> tokens) const override;
  std::vector<std::int64_t> file_starts() const override { return {starts_.begin(), starts_.end()}; }

 private:
  std::vector<MappedInput> files_;
  std::vector<std::size_t> starts_;   // start of each file in the whole text, then the end of the last
  std::vector<std::int32_t> tokens_;  // with a tokenizer: used instead of files_
  std::int64_t vocabulary_ = 256;
};

}  // namespace rondo
