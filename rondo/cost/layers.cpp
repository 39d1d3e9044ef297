#include "rondo/cost/layers.h"

#include <algorithm>
#include <cmath>

namespace rondo::cost {
namespace {

constexpr double LayerPasses::*kSeconds[] = {&LayerPasses::forward_s, &LayerPasses::backward_s,
                                             &LayerPasses::backward_input_s, &LayerPasses::backward_weight_s};
constexpr std::uint64_t LayerPasses::*kBytes[] = {
    &LayerPasses::activation_bytes,        &LayerPasses::deferred_bytes,
    &LayerPasses::forward_workspace_bytes, &LayerPasses::backward_workspace_bytes,
    &LayerPasses::input_workspace_bytes,   &LayerPasses::weight_workspace_bytes};

}  // namespace

LayerPasses LayerPart::at(double samples) const {
  LayerPasses result;
  result.samples = static_cast<std::uint64_t>(std::max(samples, 0.0));
  const auto more = std::find_if(passes.begin(), passes.end(), [&](const LayerPasses& measured) {
    return static_cast<double>(measured.samples) >= samples;
  });
  // On the line through the two next ones; of one, through nothing for no sample.
  const auto upper =
      passes.size() == 1 ? passes.begin() : std::clamp(more, passes.begin() + 1, passes.end() - 1);
  const LayerPasses none{.samples = 0};
  const LayerPasses& lower = passes.size() == 1 ? none : *(upper - 1);
  const double share = (samples - static_cast<double>(lower.samples)) /
                       (static_cast<double>(upper->samples) - static_cast<double>(lower.samples));
  const auto between = [&](double low, double high) { return std::max(0.0, low + share * (high - low)); };
  for (const auto time : kSeconds) result.*time = between(lower.*time, (*upper).*time);
  for (const auto bytes : kBytes) {
    result.*bytes = static_cast<std::uint64_t>(
        std::llround(between(static_cast<double>(lower.*bytes), static_cast<double>((*upper).*bytes))));
  }
  return result;
}

const LayerPart* LayerProfile::part(const std::string& dimension, int ranks) const {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const LayerPart& part) {
    return part.ranks == ranks && (ranks == 1 || part.dimension == dimension);
  });
  return found == parts.end() ? nullptr : &*found;
}

}  // namespace rondo::cost
