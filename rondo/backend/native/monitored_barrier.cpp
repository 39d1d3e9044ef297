#include "rondo/backend/native/monitored_barrier.h"

#include <string>
#include <thread>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(2);

// Keys of the last call that a rank has come to, that rank 0 has judged, and that it let pass. They are
// rewritten from call to call, so that the store does not fill.
std::string arrived(int rank) { return str("monitored-barrier/arrived/", rank); }
constexpr const char* kJudged = "monitored-barrier/judged";
constexpr const char* kPassed = "monitored-barrier/passed";

bool has_come_to(c10d::Store& store, const std::string& key, std::uint64_t call) {
  return store.check({key}) && std::stoull(store.get_to_str(key)) >= call;
}

// Looks at the store from time to time: a wait inside it would keep the rank's other threads out of it.
bool comes_to(c10d::Store& store, const std::string& key, std::uint64_t call, Deadline deadline) {
  while (!has_come_to(store, key, call)) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

void set(c10d::Store& store, const std::string& key, std::uint64_t call) {
  const std::string value = std::to_string(call);
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
    if (!comes_to(store, arrived(rank), call, deadline)) missing.push_back(rank);
  }
  if (missing.empty()) set(store, kPassed, call);
  set(store, kJudged, call);
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
  set(store, arrived(group.rank), call);
  const bool told = comes_to(store, kJudged, call, Deadline::after(timeout));
  // No later call has passed without this rank.
  if (told && has_come_to(store, kPassed, call)) return;
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
