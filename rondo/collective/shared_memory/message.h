#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "rondo/collective/shared_memory/peers.h"

namespace rondo::shared_memory {

// One send or receive under way. Shared by the caller and the queue.
struct Message {
  int peer = 0;
  int tag = 0;
  DType type = DType::uint8;
  std::byte* data = nullptr;  // only read when sending; belongs to the caller
  std::uint64_t bytes = 0;
  std::uint64_t moved = 0;
  bool done = false;
};

// Point-to-point messages of one rank: a byte stream from every rank to every other, in rings inside the
// receiver's file. Messages from one rank arrive in the order sent; a receive takes the first one with its
// tag. A send completes when its last byte is in the ring, so small sends never wait for the receiver. Not
// thread-safe; the engine locks.
class Messages {
 public:
  explicit Messages(const Peers& peers);

  std::shared_ptr<Message> send(Message message);
  // `message.bytes` and type must be those of the message that comes; MismatchError otherwise.
  std::shared_ptr<Message> receive(Message message);
  // Without waiting; returns whether anything moved.
  bool progress();
  // A rank that has sent something nobody asked for yet, or -1; for receives from any source.
  int pending_source(int tag);

 private:
  struct Frame {
    std::uint64_t bytes;
    std::int32_t tag;
    DType type;
    std::uint8_t unused[3];
  };
  // A message that came before its receive was posted.
  struct Early {
    Frame frame;
    std::vector<std::byte> data;
    bool complete = false;
  };
  struct Incoming {
    std::deque<std::shared_ptr<Message>> posted;
    std::deque<std::unique_ptr<Early>> early;
    // The message that is arriving now; goes to `target`, or to `early_target` when nobody waits for it.
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

  bool push(int peer, Outgoing& outgoing);
  bool pull(int peer, Incoming& incoming);
  bool begin_arrival(int peer, Incoming& incoming);
  void match(const Frame& frame, const Message& message, int peer) const;
  bool deliver_early(int peer, Incoming& incoming);

  const Peers& peers_;
  std::vector<Incoming> incoming_;
  std::vector<Outgoing> outgoing_;
};

}  // namespace rondo::shared_memory
