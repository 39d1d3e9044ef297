#include "rondo/launch/run_options.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::launch {
namespace {

Streams parse_streams(std::string_view digit, std::string_view whole, std::string_view flag) {
  if (digit.size() != 1 || digit[0] < '0' || digit[0] > '3') {
    throw UsageError(
        str(flag, " ", whole, ": '", digit,
            "' is not one of 0 (none), 1 (stdout), 2 (stderr), 3 (both); per rank as in 0:1,1:2"));
  }
  const int bits = digit[0] - '0';
  return {(bits & 1) != 0, (bits & 2) != 0};
}

}  // namespace

Streams StreamsByRank::of(int local_rank) const {
  const auto found = by_rank_.find(local_rank);
  return found == by_rank_.end() ? all_ : found->second;
}

bool StreamsByRank::any() const {
  return all_.out || all_.err || std::any_of(by_rank_.begin(), by_rank_.end(), [](const auto& entry) {
           return entry.second != Streams{};
         });
}

StreamsByRank StreamsByRank::parse(std::string_view text, std::string_view flag) {
  if (text.find(':') == std::string_view::npos) return StreamsByRank(parse_streams(text, text, flag));
  StreamsByRank result;
  for (const std::string& entry : split(text, ',')) {
    const std::size_t colon = entry.find(':');
    if (colon == std::string::npos) {
      throw UsageError(str(flag, " ", text, ": '", entry, "' is not RANK:STREAMS, as in 0:1,1:2"));
    }
    const long long rank = parse_integer(entry.substr(0, colon), str(flag, " ", text, ": local rank"));
    if (rank < 0) throw UsageError(str(flag, " ", text, ": local rank ", rank, " is negative"));
    result.by_rank_[static_cast<int>(rank)] = parse_streams(entry.substr(colon + 1), text, flag);
  }
  return result;
}

std::set<int> parse_ranks(std::string_view text, int processes, std::string_view flag) {
  std::set<int> ranks;
  for (const std::string& entry : split(text, ',')) {
    const long long rank = parse_integer(entry, str(flag, " ", text));
    if (rank < 0 || rank >= processes) {
      throw UsageError(str(flag, " ", text, ": local rank ", rank, " is not in 0-", processes - 1));
    }
    ranks.insert(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace rondo::launch
