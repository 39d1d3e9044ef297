#include "rondo/backend/point_to_point.h"

#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Returns the messages with elements, and sets `device` to their device. Throws UsageError for several
// devices.
std::vector<PeerMessage> with_elements(const std::vector<PeerMessage>& messages,
                                       std::optional<c10::Device>& device) {
  std::vector<PeerMessage> result;
  for (const PeerMessage& message : messages) {
    if (message.tensor.numel() == 0) continue;
    if (device && *device != message.tensor.device()) {
      throw UsageError(str("the tensors of one exchange are on ", device->str(), " and ",
                           message.tensor.device().str(), "; move them to one device"));
    }
    device = message.tensor.device();
    result.push_back(message);
  }
  return result;
}

// A scope between an engine's startCoalescing and endCoalescing.
class CoalescedCalls {
 public:
  explicit CoalescedCalls(c10d::Backend& backend) : backend_(&backend) { backend.startCoalescing(); }
  CoalescedCalls(const CoalescedCalls&) = delete;
  CoalescedCalls& operator=(const CoalescedCalls&) = delete;
  // Ends the scope after an error: otherwise the engine would add all later calls to it.
  ~CoalescedCalls() {
    if (backend_ == nullptr) return;
    try {
      backend_->endCoalescing();
    } catch (const std::exception&) {
      // The first error is already being thrown.
    }
  }

  c10::intrusive_ptr<c10d::Work> end() {
    c10d::Backend* const backend = backend_;
    backend_ = nullptr;
    return backend->endCoalescing();
  }

 private:
  c10d::Backend* backend_;  // null: ended
};

}  // namespace

bool matches_by_order(const Group& group, c10::Device device) {
  return !device.is_cpu() && !group.traits().honours_tags;
}

std::vector<c10::intrusive_ptr<c10d::Work>> start_exchange(const Group& group,
                                                           const std::vector<PeerMessage>& sends,
                                                           const std::vector<PeerMessage>& receives) {
  std::optional<c10::Device> device;
  const std::vector<PeerMessage> outgoing = with_elements(sends, device);
  const std::vector<PeerMessage> incoming = with_elements(receives, device);
  if (!device) return {};
  c10d::Backend& backend = *group.backend();
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  // Receives first, so that no engine needs to buffer.
  const auto start = [&] {
    for (const PeerMessage& message : incoming) {
      std::vector<at::Tensor> tensors{message.tensor};
      works.push_back(backend.recv(tensors, message.peer, message.tag));
    }
    for (const PeerMessage& message : outgoing) {
      std::vector<at::Tensor> tensors{message.tensor};
      works.push_back(backend.send(tensors, message.peer, message.tag));
    }
  };
  if (!matches_by_order(group, *device)) {
    start();
    return works;
  }
  CoalescedCalls calls(backend);
  start();
  return {calls.end()};
}

namespace {

// Time that a waiting rank gets to publish its own peers. A rank that closes its connections has already
// published them, or is dead; but Gloo closes connections at its deadline before the rank publishes, and
// deadlines are close to each other.
constexpr auto kDeadlinesApart = std::chrono::seconds(5);
constexpr auto kAnswerTimeNearDeadline = std::chrono::seconds(3);
constexpr auto kAnswerTime = std::chrono::milliseconds(15);
constexpr auto kLongestWait = std::chrono::hours(24 * 365);
constexpr auto kLookInterval = std::chrono::milliseconds(5);
// Suffix of a published list if the rank's deadline is near or has passed.
constexpr const char* kNearDeadline = " near its deadline";
// Tag that no message uses.
constexpr Tag kClosingTag = 0x7ffffffe;

at::Tensor as_tensor(const std::byte* bytes, std::size_t size) {
  // c10d takes mutable tensors; it only reads what it sends.
  return at::from_blob(const_cast<std::byte*>(bytes), {static_cast<std::int64_t>(size)}, at::kByte);
}

// Returns the message without libtorch's stack, which takes longer to format than the failure to detect.
std::string reason_of(const std::exception& e) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&e);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : e.what();
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
  const bool own_timeout = wait.deadline.is_never() && timeout_ != Duration::max();
  const Deadline deadline = own_timeout ? Deadline::after(timeout_) : wait.deadline;
  const auto throw_if_cancelled = [&] {
    if (wait.cancel != nullptr && wait.cancel->cancelled()) {
      throw CancelledError(str("exchange on rank ", rank(), " of ", size(), " was cancelled"));
    }
  };
  throw_if_cancelled();
  if (buffers_.size() < incoming.size()) buffers_.resize(incoming.size());
  std::vector<c10::intrusive_ptr<c10d::Work>> receives(incoming.size());
  std::vector<c10::intrusive_ptr<c10d::Work>> sends(outgoing.size());
  // Starts everything before it waits, receives first, so that no backend needs to buffer.
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
    fail({peer}, deadline, reason_of(e));
  }
  // The peers that this exchange still needs, last to first.
  std::vector<int> needed;
  for (std::size_t i = outgoing.size(); i-- > 0;) {
    if (sends[i]) needed.push_back(outgoing[i].peer);
  }
  for (std::size_t i = incoming.size(); i-- > 0;) {
    if (receives[i]) needed.push_back(incoming[i].peer);
  }
  for (std::size_t i = 0; i < incoming.size(); ++i) {
    if (!receives[i]) continue;
    finish(*receives[i], needed, deadline);
    throw_if_cancelled();
    incoming[i].take({static_cast<const std::byte*>(buffers_[i].const_data_ptr()), incoming[i].size}, 0);
  }
  for (std::size_t i = 0; i < outgoing.size(); ++i) {
    if (sends[i]) finish(*sends[i], needed, deadline);
    throw_if_cancelled();
  }
}

void PointToPointChannel::finish(c10d::Work& work, std::vector<int>& needed, const Deadline& deadline) {
  // Rounded up, so that a wait that ends before the deadline did not end because of it.
  const auto remaining =
      std::chrono::ceil<std::chrono::milliseconds>(std::min<Duration>(deadline.remaining(), kLongestWait));
  try {
    if (deadline.is_never()) {
      work.wait();
    } else {
      work.wait(std::max(remaining, std::chrono::milliseconds(1)));
    }
  } catch (const std::exception& e) {
    fail(needed, deadline, reason_of(e));
  }
  needed.pop_back();
}

void PointToPointChannel::fail(const std::vector<int>& needed, const Deadline& deadline,
                               const std::string& reason) {
  const bool out_of_time = deadline.passed();
  const bool near_deadline = deadline.remaining() < kDeadlinesApart;
  const std::string prefix =
      str("exchange on rank ", rank(), " of ", size(), " (", backend_->getBackendName(), ") ");
  const int peer = needed.back();
  int culprit = peer;
  try {
    // First, for ranks that ask as soon as their connections close. Reading the key back makes sure that it
    // is stored, as a store may set without waiting.
    store_->set(key(rank()), join(needed, ",") + (near_deadline ? kNearDeadline : ""));
    store_->try_get(key(rank()));
    close_connections();
    culprit = find_culprit(needed, near_deadline);
  } catch (const std::exception&) {
    // The store's host may be lost; then only the neighbour can be named.
  }
  const std::string because =
      str(culprit == peer ? "" : str("waits for rank ", peer, ", and "), split(reason, '\n').front());
  if (out_of_time) {
    throw TimeoutError(str(prefix, "timed out; all ranks wait for rank ", culprit, " (", because, ")"),
                       {culprit});
  }
  throw PeerLostError(str(prefix, "cannot complete: rank ", culprit, " is gone or stuck (", because,
                          "). Its own output says why; restart the job from the last checkpoint."),
                      {culprit});
}

// Follows the chain of waiting ranks as far as they answer in time: the rank that does not answer is the
// culprit.
int PointToPointChannel::find_culprit(const std::vector<int>& needed, bool near_deadline) {
  std::vector<bool> seen(static_cast<std::size_t>(size()), false);
  seen[static_cast<std::size_t>(rank())] = true;
  std::vector<int> open = needed;
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    if (seen[static_cast<std::size_t>(at)]) continue;
    seen[static_cast<std::size_t>(at)] = true;
    const auto answer = await_answer(at, near_deadline ? kAnswerTimeNearDeadline : kAnswerTime);
    if (!answer) return at;
    near_deadline = near_deadline || answer->ends_with(kNearDeadline);
    for (const std::string& after : split(answer->substr(0, answer->find(kNearDeadline)), ',')) {
      open.push_back(static_cast<int>(parse_integer(after, "rank")));
    }
  }
  return needed.back();  // a cycle
}

std::optional<std::string> PointToPointChannel::await_answer(int rank, Duration limit) {
  const Deadline deadline = Deadline::after(limit);
  while (true) {
    const bool last = deadline.passed();
    if (auto answer = store_->try_get(key(rank)); answer || last) return answer;
    std::this_thread::sleep_for(kLookInterval);
  }
}

// Closes connections so that waiting ranks notice. abort() does it if the backend supports it. Gloo does not,
// but closes all connections of a process when a wait times out, which needs a live peer.
void PointToPointChannel::close_connections() {
  backend_->abort();
  std::vector<at::Tensor> nothing{at::empty({1}, at::kByte)};
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    try {
      backend_->recv(nothing, peer, kClosingTag)->wait(std::chrono::milliseconds(1));
    } catch (const std::exception&) {
      // Ignores the expected timeout.
    }
  }
}

}  // namespace rondo
