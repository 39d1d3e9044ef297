#pragma once

namespace rondo {

// The optimizers of make_optimizer(), sorted: for command lines, which are without libtorch.
inline constexpr const char* kOptimizerNames[] = {"adagrad", "adam", "adamw", "lamb", "lars", "lion", "sgd"};

}  // namespace rondo
