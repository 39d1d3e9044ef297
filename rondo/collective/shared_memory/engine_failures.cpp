#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/failure.h"
#include "rondo/collective/monitored_barrier.h"
#include "rondo/collective/shared_memory/engine.h"
#include "rondo/collective/shared_memory/engine_visit.h"

// Detection of operations that cannot complete, and the handling of failures.
namespace rondo::shared_memory {

void Engine::fail(const std::exception_ptr& error) {
  const std::exception_ptr counts = peers_.cause_of(error);
  give_up(counts, describe_failure(counts, rank()));
  std::rethrow_exception(counts);
}

void Engine::give_up(const std::exception_ptr& error, const ChannelFailure& failure) {
  if (failure_) return;
  failure_ = error;
  peers_.announce_failure(failure);
  hands_off_ = peers_.hands_off(options().stopped_grace);
  for (PendingOperation& under_way : operations_) {
    if (under_way.owner == nullptr) continue;
    if (!hands_off_) unsafe_.push_back(under_way.owner);
    ended(std::move(under_way.owner), error);
  }
  operations_.clear();
  for (Queued& queued : queued_) {
    if (queued.owner != nullptr) ended(std::move(queued.owner), error);
  }
  queued_.clear();
  messages_.end_all(error);
}

void Engine::keep(std::shared_ptr<void> memory) {
  const std::lock_guard lock(mutex_);
  if (!hands_off_) unsafe_.push_back(std::move(memory));
}

void Engine::abort(const std::string& reason) {
  if (!process_.is_current()) return;
  const Visit visit(*this);
  give_up(std::make_exception_ptr(CancelledError(reason)), {ChannelFailure::Kind::other, rank(), reason});
}

void Engine::abort(const std::exception_ptr& error) {
  if (!process_.is_current()) return;
  const Visit visit(*this);
  give_up(error, describe_failure(error, rank()));
}

void Engine::close(const std::string& reason) {
  if (process_.is_current()) leave(reason, kLeavePatience);
}

Engine::PeerTrouble Engine::look_at_peers() const {
  PeerTrouble trouble;
  // Checks processes first: a rank that leaves in an orderly way, or fails because of another rank, sets its
  // state before its process ends.
  trouble.ended = peers_.ended();
  for (int r = 0; r < size(); ++r) {
    const RankState state = peers_.segment(r).state.load();
    if (r != rank() && state == RankState::failed) trouble.failed.push_back(r);
    if (r != rank() && state == RankState::left) trouble.left.push_back(r);
  }
  return trouble;
}

void Engine::drain_received(const PeerTrouble& trouble) {
  if (trouble.left.empty()) {
    advance();
    return;
  }
  while (advance()) {
  }
  messages_.end_those_without(trouble.left);
}

void Engine::throw_if_peer_failed(const PeerTrouble& trouble, const std::string& what,
                                  const std::vector<int>& missing) {
  const auto contains = [](const std::vector<int>& ranks, int rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  };
  const std::string prefix = str(what, " on ", peers_.self(), " cannot complete: ");
  // A lost rank explains the failures that others announce because of it.
  for (const int r : trouble.ended) {
    if (contains(trouble.left, r) || contains(trouble.failed, r)) continue;
    fail(std::make_exception_ptr(
        PeerLostError(str(prefix, "the process of ", peers_.who(r),
                          " has ended. Its own output says why; restart the job from the last checkpoint."),
                      {r})));
  }
  for (const int r : trouble.failed) {
    try {
      throw_failure(str(prefix, peers_.who(r), " failed: "), peers_.failure_of(r));
    } catch (...) {
      fail(std::current_exception());
    }
  }
  for (const int r : missing) {
    if (!contains(trouble.left, r)) continue;
    fail(std::make_exception_ptr(PeerLostError(
        str(prefix, peers_.who(r), " has left the group. Did it make fewer calls than this rank?"), {r})));
  }
}

// Counts checks instead of time: a rank that was itself stopped for a while must not blame a peer that
// continues a moment later.
void Engine::throw_if_stopped(StoppedCounts& counts, const std::string& what,
                              const std::vector<int>& missing) {
  StoppedCounts now(static_cast<std::size_t>(size()));
  for (const int r : peers_.stopped())
    now[static_cast<std::size_t>(r)] = counts[static_cast<std::size_t>(r)] + 1;
  counts = std::move(now);
  for (const int r : missing) {
    if (counts[static_cast<std::size_t>(r)] * kStoppedCheckInterval < options().stopped_grace) continue;
    fail(std::make_exception_ptr(
        TimeoutError(str(what, " on ", peers_.self(), " cannot complete: the process of ", peers_.who(r),
                         " has been stopped by a signal (SIGSTOP) for ", to_string(options().stopped_grace),
                         ", the longest time that its peers wait. Restart the job from the last checkpoint."),
                     {r})));
  }
}

// Data that a failed peer had published still completes operations started before. But a rank that starts an
// operation late, after a peer has given up on it, must not continue as if the peer had its result.
void Engine::throw_if_failed_anywhere() {
  throw_if_failed();
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || peers_.segment(r).state.load() != RankState::failed) continue;
    try {
      throw_failure(str("group '", options().group_name, "' can be used no more on ", peers_.self(), ": ",
                        peers_.who(r), " failed: "),
                    peers_.failure_of(r));
    } catch (...) {
      fail(std::current_exception());
    }
  }
}

void Engine::throw_if_broken() const {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  for (int r = 0; r < size(); ++r) {
    if (r != rank() && peers_.segment(r).state.load() == RankState::failed)
      throw_failure(str(peers_.who(r), " failed: "), peers_.failure_of(r));
  }
}

TimeoutError Engine::late(const std::string& what, const std::string& after,
                          const std::vector<int>& missing) const {
  std::vector<std::string> names;
  for (const int r : missing) names.push_back(peers_.who(r));
  std::vector<int> arrived;
  for (int r = 0; r < size(); ++r) {
    if (std::find(missing.begin(), missing.end(), r) == missing.end()) arrived.push_back(r);
  }
  return {str(what, " on ", peers_.self(), " timed out after ", after, ": arrived: ", join(arrived, ", "),
              "; missing: ", join(names, ", "),
              ". A missing rank is stopped, stuck, or slower than the timeout allows."),
          missing};
}

void Engine::time_out(const std::string& what, const std::string& after, const std::vector<int>& missing) {
  fail(std::make_exception_ptr(late(what, after, missing)));
}

std::string Engine::describe_collective(std::uint64_t sequence, std::vector<int>& missing) const {
  const CollectiveRequest* request = nullptr;
  for (const PendingOperation& under_way : operations_) {
    if (under_way.operation->sequence() == sequence) request = &under_way.operation->request();
  }
  if (sequence >= started_ && sequence - started_ < queued_.size())
    request = &queued_[sequence - started_].request;
  if (request == nullptr) return "operation";
  // Operations complete in order: all ranks wait for the oldest one.
  missing = operations_.front().operation->missing();
  return str(describe(*request), in_call(request->call), ", sequence ", sequence, ", ",
             to_string(Bytes{request->bytes()}), ",");
}

std::string Engine::describe_message(const Message& message, std::vector<int>& missing) const {
  const std::string rest = str(", tag ", message.tag, ", ", to_string(Bytes{message.bytes}), ",");
  if (message.peer == kAnyRank) {
    // Any other rank may send the message, so a receive does not fail because one rank has left.
    for (int r = 0; r < size(); ++r) {
      if (r != rank() && peers_.segment(r).state.load() != RankState::left) missing.push_back(r);
    }
    return str("recv from any rank", rest);
  }
  missing = {message.peer};
  return str(message.is_send ? "send to " : "recv from ", peers_.who(message.peer), rest);
}

// The monitored barrier uses counters in the ranks' segments, which stay mapped when a rank ends: the last
// rank to pass does not need the others.

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
  if (timeout <= Duration::zero()) throw no_time_for_monitored_barrier(options().group_name);
  const Deadline deadline = Deadline::after(timeout);
  std::vector<int> missing;
  for (int r = 1; r < size() && (missing.empty() || name_all_missing); ++r) {
    if (!reaches(peers_.segment(r).barrier_arrived, call, deadline)) missing.push_back(r);
  }
  if (missing.empty()) peers_.own().barrier_passed.store(call);
  peers_.own().barrier_judged.store(call);
  if (missing.empty()) return;
  throw missing_in_monitored_barrier(options().group_name, missing, timeout);
}

void Engine::wait_to_pass(std::uint64_t call, Duration timeout) const {
  peers_.own().barrier_arrived.store(call);
  const RankSegment& first = peers_.segment(0);
  const bool told = reaches(first.barrier_judged, call, Deadline::after(timeout));
  // No later call has passed without this rank.
  if (told && first.barrier_passed.load() >= call) return;
  throw not_passed_monitored_barrier(options().group_name, rank(), told, timeout);
}

}  // namespace rondo::shared_memory
