#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "rondo/format/metrics.h"

namespace rondo {

// Follows metrics.jsonl of a run that goes on. Not thread-safe.
class MetricsTail {
 public:
  struct News {
    // Another file has taken the place of the one that was read (rows of a long run become fewer, a resumed
    // run drops some): `rows` are all of its rows.
    bool from_the_start = false;
    std::vector<MetricsRow> rows = {};
  };

  explicit MetricsTail(std::filesystem::path path) : path_(std::move(path)) {}

  // The rows of lines that were ended since the last call; damaged lines are passed over. A file that does
  // not exist has none. Throws DataError when it cannot be opened.
  News read();

 private:
  std::filesystem::path path_;
  std::uint64_t read_bytes_ = 0;
  std::uint64_t inode_ = 0;
};

}  // namespace rondo
