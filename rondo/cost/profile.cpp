#include "rondo/cost/profile.h"

#include <algorithm>
#include <cmath>

#include "rondo/base/text.h"
#include "rondo/base/time.h"

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

namespace {

std::uint64_t scaled(std::uint64_t bytes, double factor) {
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) * factor));
}

// What grows and shrinks in a backward pass is not all of the batch: gradients are not. Below zero this is
// never less than a pass with the larger batch needs; above zero nearly all of it is activations.
std::int64_t scaled_workspace(std::int64_t bytes, std::uint64_t gradient_bytes, double factor) {
  const auto gradient = static_cast<double>(gradient_bytes);
  const double scaled = static_cast<double>(bytes) * factor;
  if (bytes >= 0 || factor <= 1) return std::llround(scaled);
  return std::llround(factor * (static_cast<double>(bytes) + gradient) - gradient);
}

}  // namespace

std::int64_t backward_workspace(const UnitProfile& unit, bool checkpointed) {
  if (!checkpointed) return unit.backward_workspace_bytes;
  if (unit.checkpointed_backward_workspace_bytes) return *unit.checkpointed_backward_workspace_bytes;
  return std::max(unit.backward_workspace_bytes, static_cast<std::int64_t>(unit.forward_workspace_bytes) -
                                                     static_cast<std::int64_t>(unit.gradient_bytes));
}

Profile scaled_to_batch(const Profile& profile, double factor) {
  Profile result = profile;
  result.batch_size = scaled(profile.batch_size, factor);
  for (UnitProfile& unit : result.units) {
    unit.forward_s *= factor;
    unit.backward_s *= factor;
    unit.recompute_s *= factor;
    unit.activation_bytes = scaled(unit.activation_bytes, factor);
    unit.checkpointed_activation_bytes = scaled(unit.checkpointed_activation_bytes, factor);
    unit.forward_workspace_bytes = scaled(unit.forward_workspace_bytes, factor);
    unit.backward_workspace_bytes =
        scaled_workspace(unit.backward_workspace_bytes, unit.gradient_bytes, factor);
    if (auto& checkpointed = unit.checkpointed_backward_workspace_bytes)
      checkpointed = scaled_workspace(*checkpointed, unit.gradient_bytes, factor);
  }
  for (LayerProfile& layer : result.layers) {  // passes say for how many samples they are
    layer.output_bytes = scaled(layer.output_bytes, factor);
    layer.checkpointed_activation_bytes = scaled(layer.checkpointed_activation_bytes, factor);
    for (LayerPart& part : layer.parts) {
      for (std::uint64_t* bytes : {&part.forward_message_bytes, &part.backward_message_bytes})
        *bytes = scaled(*bytes, factor);
    }
  }
  return result;
}

void fit_to_pass(Profile& profile, double seconds) {
  double sum = 0;
  for (const UnitProfile& unit : profile.units) sum += unit.forward_s + unit.backward_s;
  if (!(sum > 0)) return;
  for (UnitProfile& unit : profile.units) {
    for (double* time : {&unit.forward_s, &unit.backward_s, &unit.recompute_s}) *time *= seconds / sum;
  }
}

std::optional<std::string> overhead_note(const Profile& profile, int micro_batches) {
  if (micro_batches <= 1 || profile.overhead_s <= 0) return {};
  const auto text = [](double seconds) {
    return to_string(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
  };
  return str("what a step computes besides its units (overhead_s, ", text(profile.overhead_s),
             ") is counted once; with ", micro_batches,
             " micro-batches a step has a part of it once for each, so that it may take up to ",
             text(profile.overhead_s * (micro_batches - 1)), " longer than predicted");
}

}  // namespace rondo::cost
