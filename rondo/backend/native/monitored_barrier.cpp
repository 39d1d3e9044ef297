#include "rondo/backend/native/monitored_barrier.h"

#include <string>
#include <thread>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(2);

std::string arrival(std::uint64_t call, int rank) { return str("monitored-barrier/", call, "/rank-", rank); }
std::string verdict(std::uint64_t call) { return str("monitored-barrier/", call, "/verdict"); }

// Looks at the store from time to time: a wait inside it would keep the rank's other threads out of it.
bool appears(c10d::Store& store, const std::string& key, Deadline deadline) {
  while (!store.check({key})) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

void set(c10d::Store& store, const std::string& key, const std::string& value) {
  store.set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
}

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += str(text.empty() ? "" : ", ", rank);
  return text;
}

void let_the_others_pass(c10d::Store& store, const shared_memory::GroupOptions& group, std::uint64_t call,
                         Duration timeout, bool name_all_missing) {
  if (timeout <= Duration::zero()) {
    throw TimeoutError(str("[Rank 0]: Rank 0 timed out in monitoredBarrier of group '", group.group_name,
                           "' before it looked for others: no time was given"),
                       {0});
  }
  const Deadline deadline = Deadline::after(timeout);
  std::vector<int> missing;
  for (int rank = 1; rank < group.size && (missing.empty() || name_all_missing); ++rank) {
    if (!appears(store, arrival(call, rank), deadline)) missing.push_back(rank);
  }
  set(store, verdict(call), missing.empty() ? "passed" : "failed");
  if (missing.empty()) return;
  throw TimeoutError(
      str("[Rank 0]: Rank", missing.size() > 1 ? "s " : " ", list(missing),
          " failed to pass monitoredBarrier of group '", group.group_name, "' in ", to_string(timeout)),
      missing);
}

}  // namespace

void monitored_barrier(c10d::Store& store, const shared_memory::GroupOptions& group, std::uint64_t call,
                       Duration timeout, bool name_all_missing) {
  if (group.rank == 0) {
    let_the_others_pass(store, group, call, timeout, name_all_missing);
    return;
  }
  set(store, arrival(call, group.rank), "here");
  const bool told = appears(store, verdict(call), Deadline::after(timeout));
  if (told && store.get_to_str(verdict(call)) == "passed") return;
  throw TimeoutError(str("[Rank ", group.rank, "]: Rank ", group.rank,
                         " successfully reached monitoredBarrier, but received errors while waiting for "
                         "send/recv from rank 0 "
                         "of group '",
                         group.group_name, "': ",
                         told ? "another rank is missing, and rank 0 names it"
                              : str("rank 0 did not come in ", to_string(timeout))),
                     told ? std::vector<int>{} : std::vector<int>{0});
}

}  // namespace rondo
