#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "rondo/base/cancel.h"

namespace rondo {

// What a message is about. Messages of a pair of ranks arrive in the order in which they were sent; the tag
// does not select among them, it lets the receiver notice that the sender is doing something else.
using Tag = std::int32_t;

// A message to send: `bytes` must stay as they are until the exchange returns.
struct Outgoing {
  int peer = 0;                        // the rank that receives it
  Tag tag = 0;                         // that the receiver expects
  std::span<const std::byte> bytes{};  // the message
};

// A message to receive, handed over in pieces, in order, as they arrive: so the receiver can add to its own
// numbers straight from where the channel has the bytes. Pieces begin at multiples of kPieceAlignment of the
// message and lie at addresses that are multiples of it.
struct Incoming {
  int peer = 0;          // the rank that sends it
  Tag tag = 0;           // that it must have
  std::size_t size = 0;  // in bytes; the sender must send exactly as many
  // Called with each piece and its offset in the message, by the thread in exchange().
  std::function<void(std::span<const std::byte> piece, std::size_t offset)> take{};
};
// In bytes.
constexpr std::size_t kPieceAlignment = 16;

// Moves bytes between the ranks of a group. One thread uses a channel, each rank its own; ranks are numbered
// from 0.
//
// There is one transfer call, for any number of messages in both directions: all of them go on together, so
// two ranks that send to each other never wait for each other, and a ring is full duplex. What a channel
// buffers is its own affair: a correct program works with none.
//
// Every error is final: a message may have been cut in two, so the channel is broken and later calls repeat
// the error. The other ranks find out, and name the rank that is to blame rather than the one that told them.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual int rank() const = 0;  // this rank, from 0
  virtual int size() const = 0;  // number of ranks

  // Returns when all bytes have been received and handed over, and all sent bytes may be overwritten.
  // Messages to or from one peer are matched in the order of the lists. Throws PeerLostError (a process is
  // gone, a thread left), TimeoutError (the deadline; names the rank that everybody waits for in the end),
  // MismatchError (the peer sends another size or tag), CancelledError, and what an Incoming's take() throws.
  virtual void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                        const Wait& wait) = 0;

  // Sends one message. send() and recv() wait for each other: two ranks that both send first need exchange()
  // or a buffer.
  void send(int peer, Tag tag, std::span<const std::byte> bytes, const Wait& wait);
  // Receives one of exactly bytes.size() bytes.
  void recv(int peer, Tag tag, std::span<std::byte> bytes, const Wait& wait);
};

}  // namespace rondo
