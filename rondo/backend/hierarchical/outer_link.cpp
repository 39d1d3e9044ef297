#include "rondo/backend/hierarchical/outer_link.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/string_view.h>

#include "rondo/backend/engine/engine_reason.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::hierarchical {
namespace {

// Users' own messages over the same backend have smaller tags.
constexpr int kFirstTag = 0x7ff00000;

}  // namespace

OuterLink::OuterLink(Communicator between_hosts, std::vector<std::string> names, Duration patience)
    : names_(std::move(names)),
      patience_(patience),
      on_device_(!between_hosts.traits.cpu_tensors),
      backend_(std::move(between_hosts.backend)) {}

c10::intrusive_ptr<c10d::Backend> OuterLink::backend() const {
  const std::lock_guard lock(mutex_);
  if (!backend_) throw CancelledError("the connections between hosts have been closed");
  return backend_;
}

DenseTensor OuterLink::dense(const at::Tensor& tensor, const char* operation, bool reads) const {
  if (!on_device_ || !tensor.defined() || tensor.layout() != at::kStrided)
    return rondo::dense(tensor, operation, reads);
  const at::Tensor on_device = tensor.is_cuda() ? tensor : tensor.to(at::kCUDA);
  const at::Tensor data = on_device.contiguous().resolve_conj().resolve_neg();
  return {data, data.is_same(tensor) ? at::Tensor() : tensor.detach()};
}

OuterLink::Transfer OuterLink::send(int peer, Lane lane, const void* data, std::size_t bytes) {
  return start(peer, lane, const_cast<void*>(data), bytes, false);
}

OuterLink::Transfer OuterLink::receive(int peer, Lane lane, void* data, std::size_t bytes) {
  return start(peer, lane, data, bytes, true);
}

OuterLink::Transfer OuterLink::start(int peer, Lane lane, void* data, std::size_t bytes, bool receives) {
  Transfer transfer;
  transfer.peer_ = peer;
  transfer.lane_ = lane;
  transfer.receives_ = receives;
  transfer.memory_ = at::from_blob(data, {static_cast<std::int64_t>(bytes)}, at::kByte);
  std::vector<at::Tensor> message = {transfer.memory_};
  if (on_device_) {
    message.front() = receives ? at::empty_like(transfer.memory_, at::kCUDA) : transfer.memory_.to(at::kCUDA);
    transfer.staged_ = message.front();
  }
  const int tag = kFirstTag + static_cast<int>(lane);
  const auto engine = backend();
  try {
    transfer.work_ = receives ? engine->recv(message, peer, tag) : engine->send(message, peer, tag);
  } catch (const std::exception& e) {
    throw PeerLostError(str("the connection to ", name(peer), " is lost: ", engine_reason(e)), {peer});
  }
  return transfer;
}

void OuterLink::wait(Transfer& transfer, const Deadline& given) {
  if (!transfer.work_) return;
  const Deadline deadline = transfer.lane_ == Lane::header ? given : given.later_by(patience_);
  const c10::intrusive_ptr<c10d::Work> work = std::move(transfer.work_);
  {
    const std::lock_guard lock(mutex_);
    if (!backend_) throw CancelledError("the connections between hosts have been closed");
    under_way_.insert(work.get());
  }
  std::string reason;
  bool done = false;
  try {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        deadline.is_never() ? Duration(std::chrono::hours(24)) : deadline.remaining());
    done = work->wait(std::max(left, std::chrono::milliseconds(1)));
  } catch (const std::exception& e) {
    reason = engine_reason(e);
  }
  bool aborted = false;
  {
    const std::lock_guard lock(mutex_);
    under_way_.erase(work.get());
    aborted = !backend_;
  }
  if (done) {
    if (transfer.receives_ && transfer.staged_.defined()) transfer.memory_.copy_(transfer.staged_);
    return;
  }
  if (aborted) throw CancelledError("the connections between hosts have been closed");
  const char* direction = transfer.receives_ ? "receive from " : "send to ";
  if (deadline.passed())
    throw TimeoutError(str("nothing more to ", direction, name(transfer.peer_), " in time"),
                       {transfer.peer_});
  throw PeerLostError(str("the connection to ", name(transfer.peer_),
                          " is lost: its process or its host is gone, or it gave up (", reason, ")"),
                      {transfer.peer_});
}

void OuterLink::abort() {
  c10::intrusive_ptr<c10d::Backend> closing;  // destroyed outside of the lock
  const std::lock_guard lock(mutex_);
  closing = std::move(backend_);
  backend_.reset();
  for (c10d::Work* work : under_way_) {
    try {
      work->abort();
    } catch (const std::exception&) {
      // Engines that cannot abort end the wait at its deadline.
    }
  }
}

}  // namespace rondo::hierarchical
