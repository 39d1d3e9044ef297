#pragma once

#include <map>
#include <set>
#include <string_view>

namespace rondo::launch {

// Which of a worker's output streams something applies to.
struct Streams {
  bool out = false;
  bool err = false;
  bool operator==(const Streams&) const = default;
};

// torchrun's notation for --redirects and --tee: "0" none, "1" standard output, "2" standard error, "3" both;
// or by local rank, "0:1,1:2", where ranks not named get none.
class StreamsByRank {
 public:
  StreamsByRank() = default;
  explicit StreamsByRank(Streams all) : all_(all) {}
  Streams of(int local_rank) const;
  bool any() const;
  // Throws UsageError naming `flag` and the text.
  static StreamsByRank parse(std::string_view text, std::string_view flag);

 private:
  Streams all_;
  std::map<int, Streams> by_rank_;
};

// "0,2" as a set of local ranks below `processes`. Throws UsageError naming `flag`.
std::set<int> parse_ranks(std::string_view text, int processes, std::string_view flag);

}  // namespace rondo::launch
