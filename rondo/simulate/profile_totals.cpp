#include "rondo/simulate/profile_totals.h"

#include <algorithm>

namespace rondo::simulate {

ProfileTotals totals_of(const cost::Profile& profile) {
  ProfileTotals t;
  for (const cost::UnitProfile& u : profile.units) {
    t.forward_s += u.forward_s;
    t.backward_s += u.backward_s;
    t.optimizer_s += u.optimizer_s;
    t.state_bytes += u.parameter_bytes + u.gradient_bytes + u.optimizer_bytes;
    t.gradient_bytes += u.gradient_bytes;
    t.parameter_bytes += u.parameter_bytes;
    t.activation_bytes += u.activation_bytes;
    const auto backward = static_cast<std::uint64_t>(std::max<std::int64_t>(0, u.backward_workspace_bytes));
    t.workspace_bytes = std::max({t.workspace_bytes, u.forward_workspace_bytes, backward});
  }
  return t;
}

}  // namespace rondo::simulate
