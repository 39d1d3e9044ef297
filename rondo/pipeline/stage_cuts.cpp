#include "rondo/pipeline/stage_cuts.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::pipeline {
namespace {

// Cost of the worst stage of a cut; smaller is better.
struct Worst {
  double seconds = 0;
  std::uint64_t bytes = 0;
  bool operator<(const Worst& other) const {
    return std::tie(seconds, bytes) < std::tie(other.seconds, other.bytes);
  }
};

void require_units(std::size_t units, int stages) {
  if (stages < 1 || units < static_cast<std::size_t>(stages))
    throw UsageError(
        str("a model of ", units, " units cannot be cut into ", stages, " stages of at least one unit each"));
}

}  // namespace

std::vector<int> balanced_cuts(const std::vector<UnitCost>& units, int stages, const std::vector<int>& alive,
                               std::uint64_t limit) {
  require_units(units.size(), stages);
  const auto count = units.size(), parts = static_cast<std::size_t>(stages);
  // best[s][u]: the best cut of the first u units into s stages; from[s][u]: first unit of its last stage.
  constexpr Worst kNever{std::numeric_limits<double>::infinity(), 0};
  std::vector<std::vector<Worst>> best(parts + 1, std::vector<Worst>(count + 1, kNever));
  std::vector<std::vector<std::size_t>> from(parts + 1, std::vector<std::size_t>(count + 1, 0));
  best[0][0] = {};
  // Smallest need among stages over the limit.
  std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t stage = 1; stage <= parts; ++stage) {
    const auto held = static_cast<std::uint64_t>(alive.empty() ? 1 : alive[stage - 1]);
    for (std::size_t end = stage; end <= count; ++end) {
      Worst own;
      for (std::size_t begin = end; begin-- > stage - 1;) {
        own.seconds += units[begin].seconds;
        own.bytes += units[begin].state_bytes + held * units[begin].activation_bytes;
        if (limit > 0 && own.bytes > limit) {
          smallest = std::min(smallest, own.bytes);
          break;
        }
        const Worst& before = best[stage - 1][begin];
        const Worst worst{std::max(before.seconds, own.seconds), std::max(before.bytes, own.bytes)};
        if (worst < best[stage][end]) {
          best[stage][end] = worst;
          from[stage][end] = begin;
        }
      }
    }
  }
  if (best[parts][count].seconds == kNever.seconds) {
    throw UsageError(str("no way to cut ", count, " units into ", stages, " stages keeps each within ",
                         to_string(Bytes{limit}), "; the smallest stage beyond it has ",
                         to_string(Bytes{smallest})));
  }
  std::vector<int> first(parts);
  for (std::size_t stage = parts, end = count; stage > 0; --stage) {
    end = from[stage][end];
    first[stage - 1] = static_cast<int>(end);
  }
  return first;
}

std::vector<int> cuts_at(const std::vector<std::string>& units, const std::vector<std::string>& cuts,
                         int stages) {
  require_units(units.size(), stages);
  if (cuts.size() + 1 != static_cast<std::size_t>(stages))
    throw UsageError(str("stage-cuts ", join(cuts, ","), ": ", cuts.size(), " cuts make ", cuts.size() + 1,
                         " stages, but the pipeline has ", stages));
  std::vector<int> first = {0};
  for (const std::string& cut : cuts) {
    const auto found = std::find(units.begin(), units.end(), cut);
    if (found == units.end())
      throw UsageError(str("stage-cuts: the model has no unit '", cut, "'; it has ", join(units, ", ")));
    const int place = static_cast<int>(found - units.begin());
    if (place <= first.back())
      throw UsageError(str("stage-cuts ", join(cuts, ","), ": a stage that begins with '", cut,
                           "' leaves the one before without a unit"));
    first.push_back(place);
  }
  return first;
}

}  // namespace rondo::pipeline
