#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rondo/base/cancel.h"
#include "rondo/channel/store.h"

namespace rondo {

// What a message is about. Messages of a pair of ranks arrive in the order in which they were sent; the tag
// does not select among them, it lets the receiver notice that the sender is doing something else.
using Tag = std::int32_t;

// A message to send: `bytes` must stay as they are until the exchange returns.
struct Outgoing {
  int peer = 0;
  Tag tag = 0;
  std::span<const std::byte> bytes{};
};

// A message to receive, handed over in pieces, in order, as they arrive: so the receiver can add to its own
// numbers straight from where the channel has the bytes. Pieces begin at multiples of kPieceAlignment of the
// message and lie at addresses that are multiples of it.
struct Incoming {
  int peer = 0;
  Tag tag = 0;
  std::size_t size = 0;  // in bytes; the sender must send exactly as many
  std::function<void(std::span<const std::byte> piece, std::size_t offset)> take{};
};
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
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns when all bytes have been received and handed over, and all sent bytes may be overwritten.
  // Messages to or from one peer are matched in the order of the lists. Throws PeerLostError (a process is
  // gone, a thread left), TimeoutError (the deadline; names the rank that everybody waits for in the end),
  // MismatchError (the peer sends another size or tag), CancelledError, and what an Incoming's take() throws.
  virtual void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                        const Wait& wait) = 0;

  // One message. They wait for each other: two ranks that both send first need exchange() or a buffer.
  void send(int peer, Tag tag, std::span<const std::byte> bytes, const Wait& wait);
  void recv(int peer, Tag tag, std::span<std::byte> bytes, const Wait& wait);
};

// Why a rank of a channel can go on no more, in a form that it can tell the others.
struct ChannelFailure {
  enum class Kind : std::uint32_t { lost, timeout, mismatch, other };
  Kind kind = Kind::other;
  int blamed = -1;  // the rank that is the reason, if one is
  std::string text;
};

// What `error`, thrown on `rank`, tells the others; an error that blames nobody is the rank's own.
ChannelFailure describe_failure(const std::exception_ptr& error, int rank);

// Throws what fits: PeerLostError, TimeoutError, MismatchError or CommunicationError, with `prefix` before
// the text.
[[noreturn]] void throw_failure(const std::string& prefix, const ChannelFailure& failure);

// While ranks still meet, one that gives up leaves its reason in their store for those that will not find it
// any more; `key` is the rank's own. `leave_failure` does nothing when the store is gone.
void leave_failure(Store& store, const std::string& key, const ChannelFailure& failure) noexcept;
std::optional<ChannelFailure> find_failure(Store& store, const std::string& key);

// Who a rank that ran out of time waits for in the end. `waits_for(a, b)` tells whether rank a waits for rank
// b now; `stuck(r)` whether rank r cannot run at all, whatever it says it waits for. Follows the waiting from
// `rank` on to those that wait for nobody or are stuck. When all wait in a circle, those that `rank` waits
// for.
std::vector<int> find_culprits(int rank, int size, const std::function<bool(int, int)>& waits_for,
                               const std::function<bool(int)>& stuck);

}  // namespace rondo
