#include "rondo/backend/point_to_point_channel.h"

#include <torch/types.h>
#include <algorithm>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// How long a rank that is waited for may take to say that it waits itself.
constexpr auto kAnswerTime = std::chrono::milliseconds(300);
constexpr auto kLookInterval = std::chrono::milliseconds(5);
// Not used by any message.
constexpr Tag kClosingTag = 0x7ffffffe;

at::Tensor as_tensor(const std::byte* bytes, std::size_t size) {
  // c10d takes tensors that may be written; it only reads what it sends.
  return at::from_blob(const_cast<std::byte*>(bytes), {static_cast<std::int64_t>(size)}, at::kByte);
}

}  // namespace

PointToPointChannel::PointToPointChannel(c10::intrusive_ptr<c10d::Backend> backend,
                                         std::shared_ptr<Store> store, std::string name, Duration timeout)
    : backend_(std::move(backend)), store_(std::move(store)), name_(std::move(name)), timeout_(timeout) {}

std::string PointToPointChannel::key(int rank) const { return str("channel/", name_, "/awaits/", rank); }

void PointToPointChannel::exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                                   const Wait& wait) {
  if (failure_) throw_failure("an earlier exchange failed: ", *failure_);
  try {
    run(outgoing, incoming, wait);
  } catch (...) {
    if (!failure_) failure_ = describe_failure(std::current_exception(), rank());
    throw;
  }
}

void PointToPointChannel::run(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                              const Wait& wait) {
  const Deadline deadline = wait.deadline.is_never() ? Deadline::after(timeout_) : wait.deadline;
  const auto throw_if_cancelled = [&] {
    if (wait.cancel != nullptr && wait.cancel->cancelled()) {
      throw CancelledError(str("exchange on rank ", rank(), " of ", size(), " was cancelled"));
    }
  };
  throw_if_cancelled();
  if (buffers_.size() < incoming.size()) buffers_.resize(incoming.size());
  std::vector<c10::intrusive_ptr<c10d::Work>> receives(incoming.size());
  std::vector<c10::intrusive_ptr<c10d::Work>> sends(outgoing.size());
  // Everything is under way before anything is waited for, receives first: no backend then needs to buffer.
  int peer = -1;
  try {
    for (std::size_t i = 0; i < incoming.size(); ++i) {
      const auto bytes = static_cast<std::int64_t>(incoming[i].size);
      if (bytes == 0) continue;
      if (!buffers_[i].defined() || buffers_[i].numel() < bytes) buffers_[i] = at::empty({bytes}, at::kByte);
      std::vector<at::Tensor> tensors{buffers_[i].narrow(0, 0, bytes)};
      peer = incoming[i].peer;
      receives[i] = backend_->recv(tensors, peer, incoming[i].tag);
    }
    for (std::size_t i = 0; i < outgoing.size(); ++i) {
      if (outgoing[i].bytes.empty()) continue;
      std::vector<at::Tensor> tensors{as_tensor(outgoing[i].bytes.data(), outgoing[i].bytes.size())};
      peer = outgoing[i].peer;
      sends[i] = backend_->send(tensors, peer, outgoing[i].tag);
    }
  } catch (const std::exception& e) {
    fail(peer, false, e.what());
  }
  for (std::size_t i = 0; i < incoming.size(); ++i) {
    if (!receives[i]) continue;
    finish(*receives[i], incoming[i].peer, deadline);
    throw_if_cancelled();
    incoming[i].take({static_cast<const std::byte*>(buffers_[i].const_data_ptr()), incoming[i].size}, 0);
  }
  for (std::size_t i = 0; i < outgoing.size(); ++i) {
    if (sends[i]) finish(*sends[i], outgoing[i].peer, deadline);
    throw_if_cancelled();
  }
}

void PointToPointChannel::finish(c10d::Work& work, int peer, const Deadline& deadline) {
  const auto remaining = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining());
  try {
    work.wait(std::max(remaining, std::chrono::milliseconds(1)));
  } catch (const std::exception& e) {
    fail(peer, deadline.passed(), e.what());
  }
}

void PointToPointChannel::fail(int peer, bool out_of_time, const std::string& reason) {
  const std::string prefix =
      str("exchange on rank ", rank(), " of ", size(), " (", backend_->getBackendName(), ") ");
  int culprit = peer;
  try {
    // First, for those who will ask next: closing the connections makes them do so.
    store_->set(key(rank()), std::to_string(peer));
    close_connections(peer);
    culprit = find_culprit(peer);
  } catch (const std::exception&) {
    // The store's host may be the one that is gone. Then the neighbour is all that is known.
  }
  const std::string because =
      str(culprit == peer ? "" : str("waits for rank ", peer, ", and "), split(reason, '\n').front());
  if (out_of_time) {
    throw TimeoutError(str(prefix, "ran out of time; everybody waits for rank ", culprit, " (", because, ")"),
                       {culprit});
  }
  throw PeerLostError(str(prefix, "cannot complete: rank ", culprit, " is gone or stuck (", because,
                          "). Its own output says why; restart the job from the last checkpoint."),
                      {culprit});
}

// Follows who waits for whom, as far as ranks say it in time: the one that says nothing is the reason.
int PointToPointChannel::find_culprit(int peer) {
  std::vector<bool> seen(static_cast<std::size_t>(size()), false);
  seen[static_cast<std::size_t>(rank())] = true;
  int at = peer;
  Deadline answer = Deadline::after(kAnswerTime);
  while (!answer.passed()) {
    const auto next = store_->try_get(key(at));
    if (!next) {
      std::this_thread::sleep_for(kLookInterval);
      continue;
    }
    seen[static_cast<std::size_t>(at)] = true;
    const auto after = static_cast<int>(parse_integer(*next, "rank"));
    // All in a circle.
    if (seen[static_cast<std::size_t>(after)]) return peer;
    at = after;
    answer = Deadline::after(kAnswerTime);
  }
  return at;
}

// So that ranks which wait for this one notice. abort() does it where the backend has one; Gloo has none, but
// closes all connections of a process when a wait of it runs out of time.
void PointToPointChannel::close_connections(int peer) {
  try {
    backend_->abort();
    std::vector<at::Tensor> nothing{at::empty({1}, at::kByte)};
    backend_->recv(nothing, peer, kClosingTag)->wait(std::chrono::milliseconds(1));
  } catch (const std::exception&) {
    // Closed already.
  }
}

}  // namespace rondo
