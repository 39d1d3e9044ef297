#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>

namespace rondo::bench {

struct SyntheticBatch {
  at::Tensor input;
  at::Tensor target;
};

// The batch of one rank in one step, the same numbers as bench/peers/step.py makes: drawn by splitmix64 from
// (step, rank), nothing else. Tokens mostly count upwards, so that a model has something to learn.
SyntheticBatch token_batch(const nlohmann::json& config, std::int64_t samples, std::int64_t step, int rank);
// float32 pixels in [0, 1) and a random class.
SyntheticBatch image_batch(const nlohmann::json& config, std::int64_t samples, std::int64_t step, int rank);

}  // namespace rondo::bench
