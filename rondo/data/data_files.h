#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rondo/data/dataset.h"

namespace rondo {

// What a data set is besides whose samples lie in files, one file behind the other.
class DataFiles {
 public:
  virtual ~DataFiles() = default;
  // The first sample of each file that has any, ascending, and the number of samples. A sample belongs to the
  // file in which it begins. Empty: the samples lie in no files.
  virtual std::vector<std::int64_t> file_starts() const = 0;
};

// That of `data`; empty where it lies in no files.
std::vector<std::int64_t> file_starts_of(const Dataset& data);

// Which samples of a data set are left where samples were chosen from it: `chosen` has their numbers. Empty
// where these do not ascend, since then files would not follow each other.
std::vector<std::int64_t> file_starts_of_chosen(const std::vector<std::int64_t>& starts,
                                                const std::vector<std::int64_t>& chosen);

// Starts of files that have samples: `starts` without those that begin where the next one does.
std::vector<std::int64_t> without_empty_files(std::vector<std::int64_t> starts);

}  // namespace rondo
