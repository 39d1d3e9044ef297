#include "rondo/data/data_files.h"

#include <algorithm>

namespace rondo {

std::vector<std::int64_t> file_starts_of(const Dataset& data) {
  const auto* files = dynamic_cast<const DataFiles*>(&data);
  return files == nullptr ? std::vector<std::int64_t>() : files->file_starts();
}

std::vector<std::int64_t> file_starts_of_chosen(const std::vector<std::int64_t>& starts,
                                                const std::vector<std::int64_t>& chosen) {
  if (!std::is_sorted(chosen.begin(), chosen.end())) return {};
  std::vector<std::int64_t> result;
  for (const std::int64_t start : starts)
    result.push_back(std::lower_bound(chosen.begin(), chosen.end(), start) - chosen.begin());
  return without_empty_files(std::move(result));
}

std::vector<std::int64_t> without_empty_files(std::vector<std::int64_t> starts) {
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  return starts;
}

}  // namespace rondo
