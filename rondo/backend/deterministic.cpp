#include "rondo/backend/deterministic.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/rank_values.h"
#include "rondo/env/environment.h"

namespace rondo {

bool deterministic_by_environment() {
  const std::string value = env::lookup(env::process_environment(), kDeterministicVariable).value_or("0");
  if (value != "0" && value != "1")
    throw UsageError(
        str(kDeterministicVariable, "=", value, ": it is 1, for sums in the order of ranks, or 0"));
  return value == "1";
}

bool agree_on_deterministic(bool wish, int rank, int world_size, Store& store, Duration timeout) {
  constexpr const char* kKey = "deterministic";
  if (world_size == 1) return wish;
  if (rank == 0) store.set(kKey, wish ? "1" : "0");
  return value_of_rank(store, kKey, 0, "the order of additions", timeout) == "1";
}

}  // namespace rondo
