#include <string>
#include <thread>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/shared_memory/engine.h"

// The monitored barrier goes over counters of the ranks' segments, which stay mapped when a rank ends: the
// last rank to pass needs none of the others.
namespace rondo::shared_memory {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(2);

bool reaches(const std::atomic<std::uint64_t>& counter, std::uint64_t call, Deadline deadline) {
  while (counter.load() < call) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return true;
}

}  // namespace

void Engine::monitored_barrier(Duration timeout, bool name_all_missing) {
  check_process();
  const std::lock_guard lock(barrier_mutex_);
  const std::uint64_t call = ++barriers_;
  if (rank() == 0) {
    let_the_others_pass(call, timeout, name_all_missing);
  } else {
    wait_to_pass(call, timeout);
  }
}

void Engine::let_the_others_pass(std::uint64_t call, Duration timeout, bool name_all_missing) const {
  if (timeout <= Duration::zero()) {
    throw TimeoutError(str("[Rank 0]: Rank 0 timed out in monitoredBarrier of group '", options().group_name,
                           "' before it looked for others: no time was given"),
                       {0});
  }
  const Deadline deadline = Deadline::after(timeout);
  std::vector<int> missing;
  for (int r = 1; r < size() && (missing.empty() || name_all_missing); ++r) {
    if (!reaches(peers_.segment(r).barrier_arrived, call, deadline)) missing.push_back(r);
  }
  if (missing.empty()) peers_.own().barrier_passed.store(call);
  peers_.own().barrier_judged.store(call);
  if (missing.empty()) return;
  throw TimeoutError(
      str("[Rank 0]: Rank", missing.size() > 1 ? "s " : " ", join(missing, ", "),
          " failed to pass monitoredBarrier of group '", options().group_name, "' in ", to_string(timeout)),
      missing);
}

void Engine::wait_to_pass(std::uint64_t call, Duration timeout) const {
  peers_.own().barrier_arrived.store(call);
  const RankSegment& first = peers_.segment(0);
  const bool told = reaches(first.barrier_judged, call, Deadline::after(timeout));
  // No later call has passed without this rank.
  if (told && first.barrier_passed.load() >= call) return;
  throw TimeoutError(str("[Rank ", rank(), "]: Rank ", rank(),
                         " successfully reached monitoredBarrier, but received errors while waiting for "
                         "send/recv from rank 0 of group '",
                         options().group_name, "': ",
                         told ? "another rank is missing, and rank 0 names it"
                              : str("rank 0 did not come in ", to_string(timeout))),
                     told ? std::vector<int>{} : std::vector<int>{0});
}

}  // namespace rondo::shared_memory
