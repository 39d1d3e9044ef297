#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rondo/channel/store.h"

namespace rondo {

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
