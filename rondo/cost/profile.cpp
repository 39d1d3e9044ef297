#include "rondo/cost/profile.h"

#include <cmath>

namespace rondo::cost {
namespace {

std::uint64_t scaled(std::uint64_t bytes, double factor) {
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) * factor));
}

}  // namespace

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
    unit.backward_workspace_bytes = scaled(unit.backward_workspace_bytes, factor);
  }
  return result;
}

}  // namespace rondo::cost
