#pragma once

#include <cstdint>
#include <vector>

#include "rondo/data/dataset.h"
#include "rondo/strategy/distributed_dataset.h"

namespace rondo {

// Division of the samples of a pass among readers.
struct InputDivision {
  int readers = 1;
  bool by_file = false;
  std::vector<std::int64_t> files = {};  // starts of the data's files (data_files.h), for any division
  std::int64_t most_samples = 0;         // largest number of samples of a reader in a pass
};

// Divides `data` among readers. `automatic` divides by file if there is a file for each reader, a file has
// several samples, and no reader gets over 10 % more than its share; so no reader waits for another.
// Otherwise it divides by sample. Throws UsageError for `file` if the data has no files, or fewer files than
// readers, naming both numbers.
InputDivision divide_input(const Dataset& data, AutoShard shard, int readers);

}  // namespace rondo
