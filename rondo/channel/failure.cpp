#include "rondo/channel/failure.h"

#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"

namespace rondo {

ChannelFailure describe_failure(const std::exception_ptr& error, int rank) {
  using Kind = ChannelFailure::Kind;
  const auto blamed = [rank](const CommunicationError& e) {
    return e.ranks().empty() ? rank : e.ranks().front();
  };
  try {
    std::rethrow_exception(error);
  } catch (const PeerLostError& e) {
    return {Kind::lost, blamed(e), e.what()};
  } catch (const TimeoutError& e) {
    return {Kind::timeout, blamed(e), e.what()};
  } catch (const MismatchError& e) {
    return {Kind::mismatch, blamed(e), e.what()};
  } catch (const CommunicationError& e) {
    return {Kind::other, blamed(e), e.what()};
  } catch (const std::exception& e) {
    return {Kind::other, rank, plain_message(e)};
  } catch (...) {
    return {Kind::other, rank, "unknown error"};
  }
}

void throw_failure(const std::string& prefix, const ChannelFailure& failure) {
  const std::string message = prefix + failure.text;
  const std::vector<int> ranks{failure.blamed};
  switch (failure.kind) {
    case ChannelFailure::Kind::lost:
      throw PeerLostError(message, ranks);
    case ChannelFailure::Kind::timeout:
      throw TimeoutError(message, ranks);
    case ChannelFailure::Kind::mismatch:
      throw MismatchError(message, ranks);
    case ChannelFailure::Kind::other:
      break;
  }
  throw CommunicationError(message, ranks);
}

void leave_failure(Store& store, const std::string& key, const ChannelFailure& failure) noexcept {
  try {
    store.set(key, str(static_cast<int>(failure.kind), ":", failure.blamed, ":", failure.text));
  } catch (const std::exception&) {
    // A rank that finds no failure blames the unreachable rank.
  }
}

std::optional<ChannelFailure> find_failure(Store& store, const std::string& key) {
  const std::optional<std::string> left = store.try_get(key);
  if (!left) return std::nullopt;
  const std::size_t first = left->find(':');
  const std::size_t second = left->find(':', first + 1);
  if (second == std::string::npos) return std::nullopt;
  const auto kind = static_cast<ChannelFailure::Kind>(parse_integer(left->substr(0, first), key));
  const auto blamed = parse_integer(left->substr(first + 1, second - first - 1), key);
  return ChannelFailure{kind, static_cast<int>(blamed), left->substr(second + 1)};
}

std::vector<int> find_culprits(int rank, int size, const std::function<bool(int, int)>& waits_for,
                               const std::function<bool(int)>& stuck) {
  std::vector<bool> seen(static_cast<std::size_t>(size), false);
  seen[static_cast<std::size_t>(rank)] = true;
  std::vector<int> open{rank};
  std::vector<int> direct;
  std::vector<int> culprits;
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    bool waits = false;
    for (int other = 0; other < size; ++other) {
      if (other == at || (at != rank && stuck(at)) || !waits_for(at, other)) continue;
      waits = true;
      if (at == rank) direct.push_back(other);
      if (seen[static_cast<std::size_t>(other)]) continue;
      seen[static_cast<std::size_t>(other)] = true;
      open.push_back(other);
    }
    if (!waits && at != rank) culprits.push_back(at);
  }
  return culprits.empty() ? direct : culprits;
}

}  // namespace rondo
