#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/data/mapped_input.h"
#include "rondo/data/open.h"

namespace rondo {

// Files read as one long text, in the order given, without copying them. Any thread may read.
class TextCorpus {
 public:
  // Throws DataError when a file cannot be read or all are empty.
  explicit TextCorpus(const std::vector<std::string>& paths);
  // Bytes in all files.
  std::int64_t size() const { return static_cast<std::int64_t>(starts_.back()); }
  // Copies the bytes from `offset` on as tokens. offset + tokens.size() must be at most size().
  void read(std::int64_t offset, std::span<std::int64_t> tokens) const;

 private:
  std::vector<MappedInput> files_;
  std::vector<std::size_t> starts_;  // of each file in the whole text, and the end of the last
};

// A stretch of a corpus cut into windows that follow each other: sample i is the `context` bytes from i *
// context on, its targets the byte after each, so over an epoch every byte but the first is predicted once
// (the tail that does not fill a window is left out).
class TextDataset final : public Dataset {
 public:
  // The bytes [begin, end) of `corpus`. Throws DataError when they are fewer than context + 1.
  TextDataset(std::shared_ptr<const TextCorpus> corpus, std::int64_t begin, std::int64_t end,
              std::int64_t context, std::string source);
  std::int64_t size() const override { return (end_ - begin_ - 1) / info_.targets_per_sample; }
  Batch get(std::span<const std::int64_t> indices) const override;
  const DatasetInfo& info() const override { return info_; }

 private:
  std::shared_ptr<const TextCorpus> corpus_;
  std::int64_t begin_;
  std::int64_t end_;
  DatasetInfo info_;
};

// A file or a directory of text. Validation is the tail of the text: validation_fraction of its bytes, at
// least one window.
DataKind text_kind();

}  // namespace rondo
