#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "rondo/collective/shared_memory/owner.h"
#include "rondo/collective/shared_memory/peers.h"

namespace rondo::shared_memory {

// Peer of a receive that matches any sender.
constexpr int kAnyRank = -1;

// A send or receive in flight. Shared by the caller and the queue.
struct Message {
  int peer = 0;  // a receive from any rank has kAnyRank until a message matches
  int tag = 0;
  DType type = DType::uint8;
  std::byte* data = nullptr;  // only read when sending; belongs to the caller, or to `owner`
  std::uint64_t bytes = 0;
  std::shared_ptr<OperationOwner> owner = {};  // may be null
  // Time after which the message fails even if no thread waits for it.
  Deadline deadline = Deadline::never();

  // State of the message, set by the engine.
  std::uint64_t order = 0;
  std::uint64_t moved = 0;
  bool is_send = false;
  bool done = false;
  std::exception_ptr error = nullptr;  // error of this message alone; the message has then ended
};

// Point-to-point messages of one rank: a byte stream from every rank to every other, in rings inside the
// receiver's file. Messages from one rank arrive in the order sent; a receive matches the first one with its
// tag that no earlier receive matches. A send completes when its last byte is in the ring, so small sends
// never wait for the receiver. Not thread-safe; the engine locks.
class Messages {
 public:
  // Called for every message that has ended, with its owner and its own error, if any.
  using OnEnd = std::function<void(std::shared_ptr<OperationOwner>, const std::exception_ptr&)>;

  Messages(const Peers& peers, OnEnd on_end);

  std::shared_ptr<Message> send(Message message);
  // Posts a receive. Throws MismatchError unless bytes and type of `message` equal those of the arriving
  // message.
  std::shared_ptr<Message> receive(Message message);
  // Progresses messages without waiting; returns whether any data moved.
  bool progress();

  // Returns the number of messages that have not ended.
  std::size_t under_way() const { return under_way_; }
  bool sending() const;
  // Returns a message whose own deadline has passed, or null.
  std::shared_ptr<Message> late() const;
  // End all messages, all receives, or those that need a rank that has left; the last with an error of their
  // own.
  void end_all(const std::exception_ptr& error);
  void end_receives(const std::exception_ptr& error);
  void end_those_without(const std::vector<int>& left);

 private:
  struct Frame {
    std::uint64_t bytes;
    std::int32_t tag;
    DType type;
    std::uint8_t unused[3];
  };
  // A message that arrived before its receive was posted.
  struct Early {
    Frame frame;
    std::uint64_t order;
    std::vector<std::byte> data;
    bool complete = false;
  };
  struct Incoming {
    std::deque<std::shared_ptr<Message>> posted;  // in posting order
    std::deque<std::unique_ptr<Early>> early;
    // The arriving message, which goes to `target`, or to `early_target` if no receive matches.
    bool arriving = false;
    Frame frame{};
    std::uint64_t got = 0;
    std::shared_ptr<Message> target;
    Early* early_target = nullptr;
  };
  struct Outgoing {
    std::deque<std::shared_ptr<Message>> queue;
    bool framed = false;  // the frame of the front message is in the ring
  };

  using Queue = std::deque<std::shared_ptr<Message>>;
  template <class Function>
  void for_each(Function function) const;
  template <class Wanted>
  void end_where(Wanted wanted, const std::exception_ptr& error);
  void end(const std::shared_ptr<Message>& message, const std::exception_ptr& error);
  std::shared_ptr<Message> take_posted(int peer, Incoming& incoming);
  void give_early_to_any();
  bool push(int peer, Outgoing& outgoing);
  bool pull(int peer, Incoming& incoming);
  bool begin_arrival(int peer, Incoming& incoming);
  void match(const Frame& frame, const Message& message, int peer) const;
  bool deliver_early(int peer, Incoming& incoming);

  const Peers& peers_;
  std::vector<Incoming> incoming_;
  std::vector<Outgoing> outgoing_;
  Queue any_;  // receives from any rank without a match yet
  std::uint64_t next_order_ = 0;
  std::size_t under_way_ = 0;
  OnEnd on_end_;
};

}  // namespace rondo::shared_memory
