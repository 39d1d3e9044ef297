#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "rondo/base/cancel.h"

namespace rondo {

// The tag of a message. Messages of a pair of ranks arrive in the order in which they were sent. The tag does
// not select among them; it lets the receiver detect that the sender runs another operation.
using Tag = std::int32_t;

// A message to send: `bytes` must stay unchanged until the exchange returns.
struct Outgoing {
  int peer = 0;                        // receiving rank
  Tag tag = 0;                         // expected by the receiver
  std::span<const std::byte> bytes{};  // the message
};

// A message to receive, delivered in pieces, in order, as they arrive, so that the receiver can reduce
// directly from the channel's buffer. Pieces begin at multiples of kPieceAlignment of the message and are
// aligned to it in memory.
struct Incoming {
  int peer = 0;          // sending rank
  Tag tag = 0;           // expected tag
  std::size_t size = 0;  // in bytes; must equal the size of the sent message
  // Called with each piece and its offset in the message, by the thread in exchange().
  std::function<void(std::span<const std::byte> piece, std::size_t offset)> take{};
};
// Alignment of pieces in bytes.
constexpr std::size_t kPieceAlignment = 16;

// A connection that transfers bytes between the ranks of a group. Each rank has its own channel, used by one
// thread; ranks are numbered from 0.
//
// There is one transfer call, for any number of messages in both directions: all of them progress together,
// so two ranks that send to each other never block each other, and a ring is full duplex. Buffering depends
// on the channel; a correct program works without any.
//
// Every error is final: a message may have been cut, so the channel has failed and later calls repeat the
// error. The other ranks detect it, and name the rank that caused it rather than the one that reported it.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual int rank() const = 0;  // this rank, from 0
  virtual int size() const = 0;  // number of ranks

  // Blocks until all bytes have been received and delivered, and all sent bytes may be overwritten. Messages
  // to or from one peer are matched in the order of the lists. Throws PeerLostError (a process has ended, a
  // thread left), TimeoutError (the deadline; names the rank that all others wait for), MismatchError (the
  // peer sends another size or tag), CancelledError, and the errors of an Incoming's take().
  virtual void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                        const Wait& wait) = 0;

  // Sends one message. send() and recv() wait for each other: two ranks that both send first need exchange()
  // or a buffer.
  void send(int peer, Tag tag, std::span<const std::byte> bytes, const Wait& wait);
  // Receives one message of exactly bytes.size() bytes.
  void recv(int peer, Tag tag, std::span<std::byte> bytes, const Wait& wait);
};

}  // namespace rondo
