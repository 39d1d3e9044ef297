#include "rondo/backend/hierarchical/outer_link.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <c10/util/string_view.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "rondo/backend/engine/failure_record.h"
#include "rondo/base/error.h"
#include "rondo/base/replica.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"

namespace rondo::hierarchical {
namespace {

// Users' own messages over the same backend have smaller tags.
constexpr int kFirstTag = 0x7ff00000;

struct Named {
  std::string what;
  int peer;
  FailureRecord record;

  std::vector<int> blamed() const { return peer < 0 ? std::vector<int>{} : std::vector<int>{peer}; }

  [[noreturn]] void lost(const std::string& reason) {
    const auto error = std::make_exception_ptr(PeerLostError(
        str(what,
            " cannot complete: the connection is lost, its process or its host is gone, or it gave up (",
            reason, ")"),
        blamed()));
    std::rethrow_exception(record.first(error));
  }
};

class DirectMessage final : public c10d::Work {
 public:
  DirectMessage(c10::intrusive_ptr<c10d::Work> work, DenseTensor tensor, Named named,
                std::chrono::milliseconds timeout, std::weak_ptr<DroppedMessages> dropped)
      : work_(std::move(work)),
        tensor_(std::move(tensor)),
        named_(std::move(named)),
        timeout_(timeout),
        dropped_(std::move(dropped)) {}
  DirectMessage(const DirectMessage&) = delete;
  DirectMessage& operator=(const DirectMessage&) = delete;
  ~DirectMessage() override {
    if (waited_) return;
    const auto keeper = dropped_.lock();
    if (!keeper) return;
    keeper->keep(std::move(work_), std::move(tensor_), timeout_);
  }

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override { return work_->exception(); }
  int sourceRank() const override { return work_->sourceRank(); }
  std::vector<at::Tensor> result() override {
    return tensor_.copy_of.defined() ? std::vector<at::Tensor>{tensor_.copy_of} : work_->result();
  }
  void abort() override { work_->abort(); }
  void synchronize() override {
    work_->synchronize();
    copy_back();
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = work_->getFuture();
    if (!tensor_.copy_of.defined()) return future;
    return future->then(
        [tensor = tensor_](c10::ivalue::Future& done) {
          done.value();  // throws the message's error
          tensor.copy_back();
          return c10::IValue(std::vector<at::Tensor>{tensor.copy_of});
        },
        future->elementType());
  }

  bool wait(std::chrono::milliseconds timeout) override {
    const bool unset = timeout <= std::chrono::milliseconds::zero();
    const auto limit =
        unset ? timeout_ : std::chrono::ceil<std::chrono::milliseconds>(bounded_duration(timeout));
    const Deadline deadline = Deadline::after(limit);
    bool done = false;
    waited_ = true;
    try {
      done = work_->wait(limit);
    } catch (const std::exception& e) {
      if (!deadline.passed()) named_.lost(engine_reason(e));
      throw TimeoutError(str(named_.what, " did not complete in time"), named_.blamed());
    }
    if (!done) throw CancelledError(str(named_.what, " was aborted"));
    copy_back();
    return true;
  }

 private:
  void copy_back() {
    std::call_once(copied_back_, [this] { tensor_.copy_back(); });
  }

  c10::intrusive_ptr<c10d::Work> work_;
  DenseTensor tensor_;
  std::once_flag copied_back_;
  Named named_;
  std::chrono::milliseconds timeout_;
  std::weak_ptr<DroppedMessages> dropped_;
  std::atomic<bool> waited_ = false;
};

}  // namespace

DroppedMessages::~DroppedMessages() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    abort_all();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DroppedMessages::keep(c10::intrusive_ptr<c10d::Work> work, DenseTensor tensor,
                           std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  messages_.push_back({std::move(work), std::move(tensor), timeout});
  if (!thread_.joinable()) thread_ = replica_thread([this] { run(); });
  changed_.notify_all();
}

void DroppedMessages::drain(Duration patience) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, patience, [this] { return messages_.empty(); })) abort_all();
}

void DroppedMessages::abort_all() {
  for (const Message& message : messages_) {
    try {
      message.work->abort();
    } catch (const std::exception&) {
      // Engines that cannot abort end the wait at its deadline.
    }
  }
}

void DroppedMessages::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !messages_.empty(); });
    if (messages_.empty()) return;
    Message message = messages_.front();
    lock.unlock();
    try {
      if (message.work->wait(message.timeout)) message.tensor.copy_back();
    } catch (const std::exception&) {
      // An error of the message is ignored, because the caller has dropped the message.
    }
    message = {};
    lock.lock();
    messages_.pop_front();
    changed_.notify_all();
  }
}

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
    throw TimeoutError(str("could not ", direction, name(transfer.peer_), " in time"), {transfer.peer_});
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

c10::intrusive_ptr<c10d::Work> direct_message(const StartMessage& start, DenseTensor tensor, std::string what,
                                              int peer, std::chrono::milliseconds timeout,
                                              FailureRecord record, std::weak_ptr<DroppedMessages> dropped) {
  Named named{std::move(what), peer, std::move(record)};
  try {
    return c10::make_intrusive<DirectMessage>(start(), std::move(tensor), named, timeout, std::move(dropped));
  } catch (const CancelledError&) {
    throw;  // this rank has already aborted
  } catch (const UsageError&) {
    throw;
  } catch (const c10::DistError& e) {
    named.lost(engine_reason(e));
  } catch (const c10::Error&) {
    throw;  // an invalid argument; Gloo's own errors have other types
  } catch (const std::exception& e) {
    named.lost(engine_reason(e));
  }
}

}  // namespace rondo::hierarchical
