#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "rondo/backend/engine/failure_record.h"
#include "rondo/backend/engine/request.h"
#include "rondo/backend/requests/dense_tensor.h"
#include "rondo/base/time.h"

namespace rondo::hierarchical {

// Messages between ranks of different hosts over any c10d backend's send and recv. Between two ranks,
// messages of one lane arrive in the order in which they were sent. Any thread.
class OuterLink {
 public:
  // Independent streams of messages, by the thread that starts them.
  enum class Lane : int { first, second, header };

  // `names` contains the names of ranks for error messages. Waits for data, but not for headers, may exceed
  // their deadline by up to `patience`.
  OuterLink(Communicator between_hosts, std::vector<std::string> names, Duration patience);

  // A message in flight. The memory must stay valid until wait() has returned.
  class Transfer {
   private:
    friend class OuterLink;
    c10::intrusive_ptr<c10d::Work> work_;
    int peer_ = -1;
    Lane lane_ = Lane::first;
    bool receives_ = false;
    at::Tensor staged_;  // on the backend's device
    at::Tensor memory_;
  };
  Transfer send(int peer, Lane lane, const void* data, std::size_t bytes);
  Transfer receive(int peer, Lane lane, void* data, std::size_t bytes);
  // Throws TimeoutError, or PeerLostError if the connection is lost; both name the peer.
  void wait(Transfer& transfer, const Deadline& deadline);

  // Wakes every wait() here, and closes the connections as soon as they are unused.
  void abort();
  const std::string& name(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  // Returns the backend, for operations without hierarchy. Throws CancelledError after abort().
  c10::intrusive_ptr<c10d::Backend> backend() const;
  // Returns a caller's tensor on the backend's device; otherwise as dense() of dense_tensor.h.
  DenseTensor dense(const at::Tensor& tensor, const char* operation, bool reads = true) const;

 private:
  Transfer start(int peer, Lane lane, void* data, std::size_t bytes, bool receives);

  std::vector<std::string> names_;
  Duration patience_;
  bool on_device_;
  mutable std::mutex mutex_;  // protects backend_ and under_way_
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::set<c10d::Work*> under_way_;  // with a waiting thread
};

using StartMessage = std::function<c10::intrusive_ptr<c10d::Work>()>;

// Messages whose caller has dropped their Work. An engine may cancel such a message, so that its peer waits
// forever. A thread, started for the first one, waits for them one after the other. Thread-safe.
class DroppedMessages {
 public:
  DroppedMessages() = default;
  DroppedMessages(const DroppedMessages&) = delete;
  DroppedMessages& operator=(const DroppedMessages&) = delete;
  ~DroppedMessages();

  // Takes ownership of a message; its tensor is copied back when it ends.
  void keep(c10::intrusive_ptr<c10d::Work> work, DenseTensor tensor, std::chrono::milliseconds timeout);
  // Blocks until all have ended, up to `patience`; then aborts the others.
  void drain(Duration patience);

 private:
  struct Message {
    c10::intrusive_ptr<c10d::Work> work;
    DenseTensor tensor;
    std::chrono::milliseconds timeout;
  };
  void abort_all();  // with the mutex held
  void run();

  std::mutex mutex_;  // protects all below
  std::condition_variable changed_;
  std::deque<Message> messages_;  // the first one is being waited for
  bool stopping_ = false;
  std::thread thread_;
};

// Starts a caller's own message over the engine between hosts: `start` starts it on `tensor.data`, which
// wait(), synchronize() and the future copy back. Errors of the connection, now or in wait(), become
// PeerLostError or TimeoutError, which name the peer, or the earlier failure in `record`. The engine's errors
// about the call's arguments are passed on unchanged. `what` describes the message: "send to rank 3 on host
// 1"; `peer` is -1 if any rank may send it. `timeout` applies to waits without a timeout. `dropped` takes
// over a message whose Work is destroyed before anybody has waited for it.
c10::intrusive_ptr<c10d::Work> direct_message(const StartMessage& start, DenseTensor tensor, std::string what,
                                              int peer, std::chrono::milliseconds timeout,
                                              FailureRecord record, std::weak_ptr<DroppedMessages> dropped);

}  // namespace rondo::hierarchical
