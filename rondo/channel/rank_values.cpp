#include "rondo/channel/rank_values.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

std::string value_of_rank(Store& store, const std::string& key, int rank, const std::string& subject,
                          Duration timeout) {
  try {
    return store.get(key, {Deadline::after(timeout), nullptr});
  } catch (const TimeoutError& e) {
    if (!e.ranks().empty()) throw;
    throw TimeoutError(str("waited ", to_string(timeout), " for rank ", rank, " to announce ", subject,
                           ". Was it started, and does it still run?"),
                       {rank});
  }
}

std::vector<int> ranks_without_value(Store& store, int size, const std::function<std::string(int)>& key_of) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!store.try_get(key_of(rank))) missing.push_back(rank);
  }
  return missing;
}

}  // namespace rondo
