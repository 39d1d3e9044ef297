#pragma once

#include <cstdint>
#include <vector>

#include "rondo/data/dataset.h"
#include "rondo/strategy/distributed_dataset.h"

namespace rondo {

// How the samples of a pass are divided among readers.
struct InputDivision {
  int readers = 1;
  bool by_file = false;
  std::vector<std::int64_t> files = {};  // starts of the data's files (data_files.h), whoever reads what
  std::int64_t most_samples = 0;         // of one reader in a pass
};

// `automatic` is by file where that costs nothing: there is a file for each reader, some file has several
// samples, and no reader gets a tenth more than its share, so that none waits for another; else by sample.
// Throws UsageError for `file` where there are fewer files than readers, naming both numbers, or no files.
InputDivision divide_input(const Dataset& data, AutoShard shard, int readers);

}  // namespace rondo
