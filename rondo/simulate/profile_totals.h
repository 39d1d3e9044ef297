#pragma once

#include <cstdint>

#include "rondo/cost/profile.h"

namespace rondo::simulate {

// All units of a model together; workspaces are those of the unit with the largest.
struct ProfileTotals {
  double forward_s = 0;
  double backward_s = 0;
  double optimizer_s = 0;
  std::uint64_t state_bytes = 0;  // parameters, gradients, what the optimizer remembers
  std::uint64_t gradient_bytes = 0;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t activation_bytes = 0;
  std::uint64_t workspace_bytes = 0;
};
ProfileTotals totals_of(const cost::Profile& profile);

}  // namespace rondo::simulate
