#pragma once

namespace rondo {

// The losses of make_loss(), sorted; for command lines, which do not link libtorch.
inline constexpr const char* kLossNames[] = {"bce_with_logits", "cross_entropy", "l1", "mse", "nll",
                                             "smooth_l1"};

}  // namespace rondo
