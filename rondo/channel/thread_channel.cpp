#include "rondo/channel/thread_channel.h"
#include "rondo/channel/failure.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/channel.h"

namespace rondo {
namespace {

// Longest delay until a waiting rank notices a cancellation.
constexpr auto kCancelCheckInterval = std::chrono::milliseconds(10);

// A message to be received. The receiver reads it without the mutex while it is `taking`.
struct Offer {
  enum class Progress { waiting, taking, taken };
  const Outgoing* message = nullptr;
  Progress progress = Progress::waiting;
};

}  // namespace

struct ThreadMesh::State {
  explicit State(int ranks)
      : size(ranks),
        changed(static_cast<std::size_t>(ranks)),
        offers(static_cast<std::size_t>(ranks * ranks)),
        waits(static_cast<std::size_t>(ranks * ranks), false),
        left(static_cast<std::size_t>(ranks), false),
        failures(static_cast<std::size_t>(ranks)) {}

  std::size_t pair(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(size) + static_cast<std::size_t>(to);
  }

  const int size;
  std::mutex mutex;                              // protects everything below
  std::vector<std::condition_variable> changed;  // by rank: a condition that it may wait for has changed
  std::vector<std::deque<Offer*>> offers;        // by pair(from, to), oldest first
  std::vector<bool> waits;                       // by pair(waiting rank, awaited rank)
  std::vector<bool> left;                        // by rank
  std::vector<std::optional<ChannelFailure>> failures;  // by rank
};

class ThreadMesh::Member final : public Channel {
 public:
  Member(std::shared_ptr<State> state, int rank) : state_(std::move(state)), rank_(rank) {}

  ~Member() override {
    const std::lock_guard lock(state_->mutex);
    state_->left[static_cast<std::size_t>(rank_)] = true;
    for (auto& changed : state_->changed) changed.notify_all();
  }

  int rank() const override { return rank_; }
  int size() const override { return state_->size; }

  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                const Wait& wait) override {
    std::unique_lock lock(state_->mutex);
    if (const auto& failure = state_->failures[static_cast<std::size_t>(rank_)]) {
      throw_failure("an earlier exchange failed: ", *failure);
    }
    std::vector<Offer> offers(outgoing.size());
    for (std::size_t i = 0; i < outgoing.size(); ++i) {
      offers[i].message = &outgoing[i];
      state_->offers[state_->pair(rank_, outgoing[i].peer)].push_back(&offers[i]);
      wake(outgoing[i].peer);
    }
    try {
      run(lock, offers, incoming, wait);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      withdraw(lock, offers);
      // The published waits are kept, because other ranks may be about to follow them.
      state_->failures[static_cast<std::size_t>(rank_)] = describe_failure(std::current_exception(), rank_);
      for (auto& changed : state_->changed) changed.notify_all();
      throw;
    }
  }

 private:
  void wake(int peer) { state_->changed[static_cast<std::size_t>(peer)].notify_all(); }

  void run(std::unique_lock<std::mutex>& lock, const std::vector<Offer>& offers,
           std::span<const Incoming> incoming, const Wait& wait) {
    std::vector<bool> received(incoming.size(), false);
    while (true) {
      if (take_one(lock, incoming, received)) continue;
      const std::vector<int> awaited = open_peers(offers, incoming, received);
      describe_missing_ranks(awaited);
      if (awaited.empty()) return;
      throw_if_peer_failed(awaited);
      if (wait.cancel != nullptr && wait.cancel->cancelled())
        throw CancelledError(prefix() + "was cancelled");
      if (wait.deadline.passed()) throw_timeout();
      const TimePoint look = wait.cancel == nullptr ? TimePoint::max() : Clock::now() + kCancelCheckInterval;
      const TimePoint until = std::min(look, wait.deadline.at());
      auto& changed = state_->changed[static_cast<std::size_t>(rank_)];
      if (until == TimePoint::max())
        changed.wait(lock);
      else
        changed.wait_until(lock, until);
    }
  }

  // Receives the next available message; returns false if there is none.
  bool take_one(std::unique_lock<std::mutex>& lock, std::span<const Incoming> incoming,
                std::vector<bool>& received) {
    std::vector<bool> skipped_checkpoints(static_cast<std::size_t>(state_->size), false);
    for (std::size_t i = 0; i < incoming.size(); ++i) {
      const Incoming& wanted = incoming[i];
      const auto peer = static_cast<std::size_t>(wanted.peer);
      if (received[i] || skipped_checkpoints[peer]) continue;
      auto& queue = state_->offers[state_->pair(wanted.peer, rank_)];
      if (queue.empty()) {
        skipped_checkpoints[peer] = true;
        continue;
      }
      Offer& offer = *queue.front();
      const Outgoing& message = *offer.message;
      if (message.tag != wanted.tag || message.bytes.size() != wanted.size) {
        throw MismatchError(str(prefix(), "expects message ", wanted.tag, " of ", wanted.size,
                                " bytes from rank ", wanted.peer, ", which sends message ", message.tag,
                                " of ", message.bytes.size(), " bytes; do all ranks run the same operation?"),
                            {wanted.peer});
      }
      queue.pop_front();
      offer.progress = Offer::Progress::taking;
      lock.unlock();
      std::exception_ptr error;
      try {
        if (!message.bytes.empty()) wanted.take(message.bytes, 0);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      offer.progress = Offer::Progress::taken;
      wake(wanted.peer);
      if (error) std::rethrow_exception(error);
      received[i] = true;
      return true;
    }
    return false;
  }

  static std::vector<int> open_peers(const std::vector<Offer>& offers, std::span<const Incoming> incoming,
                                     const std::vector<bool>& received) {
    std::vector<int> peers;
    for (std::size_t i = 0; i < incoming.size(); ++i) {
      if (!received[i]) peers.push_back(incoming[i].peer);
    }
    for (const Offer& offer : offers) {
      if (offer.progress != Offer::Progress::taken) peers.push_back(offer.message->peer);
    }
    return peers;
  }

  void describe_missing_ranks(const std::vector<int>& peers) {
    for (int peer = 0; peer < state_->size; ++peer) state_->waits[state_->pair(rank_, peer)] = false;
    for (const int peer : peers) state_->waits[state_->pair(rank_, peer)] = true;
  }

  void throw_if_peer_failed(const std::vector<int>& awaited) const {
    for (const int peer : awaited) {
      if (const auto& failure = state_->failures[static_cast<std::size_t>(peer)]) {
        throw_failure(str(prefix(), "cannot complete, because rank ", peer, " failed: "), *failure);
      }
    }
    for (const int peer : awaited) {
      if (state_->left[static_cast<std::size_t>(peer)]) {
        throw PeerLostError(str(prefix(), "cannot complete: rank ", peer, " has left"), {peer});
      }
    }
  }

  [[noreturn]] void throw_timeout() const {
    const std::vector<int> culprits = find_culprits(
        rank_, state_->size, [&](int a, int b) { return bool{state_->waits[state_->pair(a, b)]}; },
        [](int) { return false; });
    throw TimeoutError(str(prefix(), "timed out; all ranks wait for rank ", join(culprits, ", ")), culprits);
  }

  // Withdraws the messages: no peer may read this rank's bytes after the return.
  void withdraw(std::unique_lock<std::mutex>& lock, std::vector<Offer>& offers) {
    for (Offer& offer : offers) {
      std::erase(state_->offers[state_->pair(rank_, offer.message->peer)], &offer);
      state_->changed[static_cast<std::size_t>(rank_)].wait(
          lock, [&] { return offer.progress != Offer::Progress::taking; });
    }
  }

  std::string prefix() const { return str("exchange on rank ", rank_, " of ", state_->size, " (threads) "); }

  std::shared_ptr<State> state_;
  int rank_;
};

ThreadMesh::ThreadMesh(int size) : state_(std::make_shared<State>(size)) {}

std::unique_ptr<Channel> ThreadMesh::connect(int rank) const {
  return std::make_unique<Member>(state_, rank);
}

}  // namespace rondo
