#include "rondo/cost/profile.h"

#include <algorithm>
#include <cmath>

namespace rondo::cost {
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

}  // namespace rondo::cost
