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
  // Streams of messages that do not wait for each other, by who starts them.
  enum class Lane : int { first, second, header };

  // `names` says who each rank is, for messages. Waits for all but headers take up to `patience` longer than
  // their deadline.
  OuterLink(Communicator between_hosts, std::vector<std::string> names, Duration patience);

  // A message under way. The memory must stay until it has been waited for.
  class Transfer {
   private:
    friend class OuterLink;
    c10::intrusive_ptr<c10d::Work> work_;
    int peer_ = -1;
    Lane lane_ = Lane::first;
    bool receives_ = false;
    at::Tensor staged_;  // on the device that the backend wants
    at::Tensor memory_;
  };
  Transfer send(int peer, Lane lane, const void* data, std::size_t bytes);
  Transfer receive(int peer, Lane lane, void* data, std::size_t bytes);
  // Throws TimeoutError, or PeerLostError when the connection broke; both name the peer.
  void wait(Transfer& transfer, const Deadline& deadline);

  // Wakes every wait() here, and ends the connections as soon as nobody uses them.
  void abort();
  const std::string& name(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  // The backend itself, for what needs no hierarchy. Throws when aborted.
  c10::intrusive_ptr<c10d::Backend> backend() const;
  // A caller's tensor as that backend takes it; otherwise as dense() of dense_tensor.h.
  DenseTensor dense(const at::Tensor& tensor, const char* operation, bool reads = true) const;

 private:
  Transfer start(int peer, Lane lane, void* data, std::size_t bytes, bool receives);

  std::vector<std::string> names_;
  Duration patience_;
  bool on_device_;
  mutable std::mutex mutex_;  // protects backend_ and under_way_
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::set<c10d::Work*> under_way_;  // being waited for
};

using StartMessage = std::function<c10::intrusive_ptr<c10d::Work>()>;

// Keeps messages that their caller has dropped until they have ended: an engine may forget a message whose
// Work is gone, and its peer would wait for ever. Waits for them one after the other on a thread, which
// starts with the first one. Any thread.
class DroppedMessages {
 public:
  DroppedMessages() = default;
  DroppedMessages(const DroppedMessages&) = delete;
  DroppedMessages& operator=(const DroppedMessages&) = delete;
  ~DroppedMessages();

  // Takes a message over, whose tensor is copied back at its end.
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

// A caller's own message over the engine between hosts: `start` starts it on `tensor.data`, which wait(),
// synchronize() and the future copy back. What the connection does, then or in wait(), is PeerLostError or
// TimeoutError, which name the peer, or the failure in `record` that came before; what the engine has against
// the call itself is the caller's to mend, stays as it is and breaks nothing. `dropped` takes a message whose
// Work is dropped before somebody has waited for it. `what` says the message: "send
// to rank 3 on host 1"; `peer` is -1 where any rank may send it. `timeout` holds for waits that name none.
c10::intrusive_ptr<c10d::Work> direct_message(const StartMessage& start, DenseTensor tensor, std::string what,
                                              int peer, std::chrono::milliseconds timeout,
                                              FailureRecord record, std::weak_ptr<DroppedMessages> dropped);

}  // namespace rondo::hierarchical
