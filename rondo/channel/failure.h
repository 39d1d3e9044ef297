#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rondo/channel/store.h"

namespace rondo {

// The reason why a rank of a channel failed, in a form that it can publish for the others.
struct ChannelFailure {
  enum class Kind : std::uint32_t { lost, timeout, mismatch, other };
  Kind kind = Kind::other;
  int blamed = -1;  // rank at fault, or -1
  std::string text;
};

// Describes `error`, thrown on `rank`, for the other ranks; an error without ranks is the rank's own.
ChannelFailure describe_failure(const std::exception_ptr& error, int rank);

// Throws the matching error: PeerLostError, TimeoutError, MismatchError or CommunicationError, with `prefix`
// before the text.
[[noreturn]] void throw_failure(const std::string& prefix, const ChannelFailure& failure);

// Store and read the reason of a rank that gives up during the rendezvous, for ranks that can no longer reach
// it; `key` is the rank's own. leave_failure() does nothing if the store is lost.
void leave_failure(Store& store, const std::string& key, const ChannelFailure& failure) noexcept;
std::optional<ChannelFailure> find_failure(Store& store, const std::string& key);

// Returns the ranks that a rank with a timeout is ultimately waiting for. `waits_for(a, b)` returns whether
// rank a waits for rank b now; `stuck(r)` whether rank r cannot run at all, independent of its waits. Follows
// the waits from `rank` to ranks that wait for none or are stuck. In a cycle, returns the ranks that `rank`
// waits for.
std::vector<int> find_culprits(int rank, int size, const std::function<bool(int, int)>& waits_for,
                               const std::function<bool(int)>& stuck);

}  // namespace rondo
