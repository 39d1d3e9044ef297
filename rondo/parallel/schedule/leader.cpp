#include "rondo/parallel/schedule/leader.h"

#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/replica.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr int kTag = 7;
// Messages other than a segment's number.
constexpr std::int64_t kStopped = -1;
constexpr std::int64_t kAlive = -2;
// Number of heartbeats per `patience`, so that one may be late.
constexpr int kWordsInPatience = 4;
constexpr Duration kNoTimeout = Duration::zero();  // the wait uses the group's own timeout

}  // namespace

Leader::Leader(Group channel, Duration patience)
    : channel_(std::move(channel)), patience_(patience), last_word_(Clock::now()) {
  if (leads() && channel_.size() > 1) pulse_ = replica_thread([this] { send_heartbeat(); });
}

Leader::~Leader() { end_pulse(); }

void Leader::send_to_all(std::int64_t word) {
  const std::lock_guard sending(sending_);
  std::vector<std::vector<at::Tensor>> messages;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int rank = 1; rank < channel_.size(); ++rank) {
    messages.push_back({at::full({1}, word, at::kLong)});
    works.push_back(channel_.backend()->send(messages.back(), rank, kTag));
  }
  wait_for(works, kNoTimeout);
  const std::lock_guard lock(mutex_);
  last_word_ = Clock::now();
}

void Leader::wait_for(const std::vector<c10::intrusive_ptr<c10d::Work>>& works, Duration limit) {
  bool goes_on = true;
  {
    const std::lock_guard lock(mutex_);
    goes_on = !given_up_;
    under_way_ = works;
  }
  for (const auto& work : works)
    goes_on = goes_on && work->wait(std::chrono::duration_cast<std::chrono::milliseconds>(limit));
  const std::lock_guard lock(mutex_);
  under_way_.clear();
  if (!goes_on) throw CancelledError("this rank has stopped ordering its segments");
}

void Leader::give_up() noexcept {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  for (const auto& work : under_way_) {
    try {
      work->abort();
    } catch (const std::exception&) {
      // The operation has ended meanwhile, or its engine does not wait beyond its own deadline.
    }
  }
}

void Leader::send_heartbeat() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    const TimePoint due = last_word_ + patience_ / kWordsInPatience;
    if (Clock::now() < due) {
      changed_.wait_until(lock, due);
      continue;
    }
    lock.unlock();
    try {
      send_to_all(kAlive);
    } catch (const std::exception&) {
      return;  // the thread that publishes segments gets the same error and reports it
    }
    lock.lock();
  }
}

void Leader::end_pulse() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (pulse_.joinable()) pulse_.join();
}

void Leader::publish(std::uint64_t segment) { send_to_all(static_cast<std::int64_t>(segment)); }

std::optional<std::uint64_t> Leader::next() {
  for (;;) {
    std::vector<at::Tensor> message = {at::empty({1}, at::kLong)};
    const TimePoint begin = Clock::now();
    try {
      wait_for({channel_.backend()->recv(message, 0, kTag)}, patience_);
    } catch (const CancelledError&) {
      throw;
    } catch (const std::exception&) {
      if (Clock::now() - begin < patience_) throw;
      throw TimeoutError(str("rank 0 of group '", channel_.name(), "' has sent nothing for ",
                             to_string(patience_), ", neither its next segment nor a heartbeat"),
                         {0});
    }
    const auto word = message.front().item<std::int64_t>();
    if (word == kAlive) continue;
    if (word == kStopped) return std::nullopt;
    return static_cast<std::uint64_t>(word);
  }
}

std::exception_ptr Leader::cause_of(const std::exception_ptr& error) const noexcept {
  ExtendedBackend* const engine = channel_.extended();
  return engine == nullptr ? error : engine->cause_of(error);
}

void Leader::stop() noexcept {
  try {
    end_pulse();
    send_to_all(kStopped);
  } catch (const std::exception&) {
    // Ignores errors: a rank that cannot receive the message does not need it.
  }
}

}  // namespace rondo
