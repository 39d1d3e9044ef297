#include "rondo/strategy/input_division.h"

#include <algorithm>

#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/data_files.h"
#include "rondo/data/training_sampler.h"

namespace rondo {
namespace {

constexpr double kMostAboveShare = 1.1;

}  // namespace

InputDivision divide_input(const Dataset& data, AutoShard shard, int readers) {
  if (shard == AutoShard::off) return {.readers = 1, .most_samples = data.size()};
  InputDivision result{.readers = readers, .files = file_starts_of(data)};
  const std::int64_t files = std::max<std::int64_t>(0, std::ssize(result.files) - 1);
  if (shard == AutoShard::file && files == 0) {
    throw UsageError(str(
        "input cannot be sharded by file: ", data.info().source, " is read as one set of ", data.size(),
        " samples that lie in no files of their own; shard it by data or auto, or distribute DatasetFiles"));
  }
  if (shard == AutoShard::file && files < readers) {
    throw UsageError(str("sharding by file needs a file for each of ", readers, " processes, and ", files,
                         " of ", data.info().source, files == 1 ? " has" : " have",
                         " samples for training; shard by data or auto, or divide the data into more files"));
  }
  result.most_samples = divide_rounding_up(data.size(), readers);
  if (shard == AutoShard::data || readers == 1 || files < readers) return result;
  const std::vector<std::int64_t> sizes = sizes_by_file(result.files, readers);
  const std::int64_t most = *std::max_element(sizes.begin(), sizes.end());
  const double share = static_cast<double>(data.size()) / readers;
  const bool costs_nothing = files < data.size() && static_cast<double>(most) <= kMostAboveShare * share;
  result.by_file = shard == AutoShard::file || costs_nothing;
  if (result.by_file) result.most_samples = most;
  return result;
}

}  // namespace rondo
