#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rondo/data/data_files.h"
#include "rondo/data/dataset.h"
#include "rondo/data/open.h"

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

}  // namespace rondo
