#include "rondo/backend/hierarchical/store_barrier.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "rondo/backend/engine/store_adapter.h"
#include "rondo/base/text.h"
#include "rondo/collective/monitored_barrier.h"

namespace rondo::hierarchical {
namespace {

constexpr const char* kPassed = "passed";
constexpr const char* kMissing = "missing";
// The store is polled at the first interval, which doubles after each poll up to the last one.
constexpr auto kFirstInterval = std::chrono::milliseconds(1);
constexpr auto kLastInterval = std::chrono::milliseconds(32);

bool becomes_true(const std::function<bool()>& condition, Deadline deadline) {
  for (auto interval = kFirstInterval; !condition(); interval = std::min(2 * interval, kLastInterval)) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(interval);
  }
  return true;
}

}  // namespace

StoreBarrier::StoreBarrier(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::string group)
    : store_(std::move(store)), rank_(rank), size_(size), group_(std::move(group)) {}

void StoreBarrier::wait(Duration timeout, bool name_all_missing) {
  const std::lock_guard lock(mutex_);
  const std::string prefix = str("call ", ++calls_, "/");
  if (rank_ == 0) {
    let_the_others_pass(prefix, timeout, name_all_missing);
  } else {
    wait_to_pass(prefix, timeout);
  }
}

void StoreBarrier::let_the_others_pass(const std::string& prefix, Duration timeout, bool name_all_missing) {
  if (timeout <= Duration::zero()) throw no_time_for_monitored_barrier(group_);
  StoreFromC10d store(store_);
  const Deadline deadline = Deadline::after(timeout);
  std::vector<int> missing;
  for (int rank = 1; rank < size_ && (missing.empty() || name_all_missing); ++rank) {
    const auto has_come = [&] { return store.try_get(str(prefix, rank)).has_value(); };
    if (!becomes_true(has_come, deadline)) missing.push_back(rank);
  }
  store.set(prefix + "verdict", missing.empty() ? kPassed : kMissing);
  if (!missing.empty()) throw missing_in_monitored_barrier(group_, missing, timeout);
  becomes_true([&] { return store.add(prefix + "passed", 0) == size_ - 1; }, deadline);
}

void StoreBarrier::wait_to_pass(const std::string& prefix, Duration timeout) {
  StoreFromC10d store(store_);
  store.set(str(prefix, rank_), "");
  std::string verdict;
  const auto is_judged = [&] {
    verdict = store.try_get(prefix + "verdict").value_or("");
    return !verdict.empty();
  };
  const bool told = becomes_true(is_judged, Deadline::after(timeout));
  if (verdict != kPassed) throw not_passed_monitored_barrier(group_, rank_, told, timeout);
  store.add(prefix + "passed", 1);
}

}  // namespace rondo::hierarchical
