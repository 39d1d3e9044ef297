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

// Whether content that starts with `head` is text: it has no zero byte (git's rule).
bool looks_like_text(std::string_view head);

// The files to read as one text: `path` itself when it is a file; of a directory every file below it, sorted
// by path, that is not empty and looks like text, or, when `extensions` is not empty, has one of these
// endings. Hidden files and directories (".git") and linked directories are passed over. Throws DataError
// when there is none, saying what was found instead.
std::vector<std::string> find_text_files(const std::string& path, const std::vector<std::string>& extensions);

class BytePairs;

// Files read as one long text, in the order given: its bytes, without copying them, or with a tokenizer its
// tokens, in four bytes of memory each. Any thread may read.
class TextCorpus final : public TokenSource {
 public:
  // `tokenizer` may be null. Throws DataError when a file cannot be read or all are empty.
  explicit TextCorpus(const std::vector<std::string>& paths, const BytePairs* tokenizer = nullptr);
  std::int64_t size() const override { return static_cast<std::int64_t>(starts_.back()); }
  std::int64_t vocabulary() const override { return vocabulary_; }  // 256 of bytes
  void read(std::int64_t offset, std::span<std::int64_t> tokens) const override;
  std::vector<std::int64_t> file_starts() const override { return {starts_.begin(), starts_.end()}; }

 private:
  std::vector<MappedInput> files_;
  std::vector<std::size_t> starts_;   // of each file in the whole text, and the end of the last
  std::vector<std::int32_t> tokens_;  // with a tokenizer, instead of files
  std::int64_t vocabulary_ = 256;
};

}  // namespace rondo
