#include "rondo/server/optimizer.h"

#include <bit>
#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

// Loops over all elements, compiled with -O3 (CMakeLists.txt) so that the compiler vectorises them.
namespace rondo::server {
namespace {

void sgd(const OptimizerSpec& spec, std::uint64_t step, const Stretch& s) {
  const auto rate = static_cast<float>(spec.learning_rate);
  const auto decay = static_cast<float>(spec.weight_decay);
  const float* __restrict const value = s.value;
  const float* __restrict const gradient = s.gradient;
  float* __restrict const new_value = s.new_value;
  if (spec.momentum == 0) {
    for (std::size_t i = 0; i < s.size; ++i)
      new_value[i] = value[i] - rate * (gradient[i] + decay * value[i]);
    return;
  }
  const auto momentum = static_cast<float>(spec.momentum);
  // The first gradient initialises the momentum without dampening, as in libtorch.
  const auto share = step == 1 ? 1.0F : static_cast<float>(1 - spec.dampening);
  const float* __restrict const buffer = s.slots[0];
  float* __restrict const new_buffer = s.new_slots[0];
  const bool nesterov = spec.nesterov != 0;
  for (std::size_t i = 0; i < s.size; ++i) {
    const float g = gradient[i] + decay * value[i];
    const float b = momentum * buffer[i] + share * g;
    new_buffer[i] = b;
    new_value[i] = value[i] - rate * (nesterov ? g + momentum * b : b);
  }
}

void adam(const OptimizerSpec& spec, std::uint64_t step, const Stretch& s) {
  const auto t = static_cast<double>(step);
  const auto step_size = static_cast<float>(spec.learning_rate / (1 - std::pow(spec.beta1, t)));
  const auto root_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(spec.beta2, t)));
  const auto beta1 = static_cast<float>(spec.beta1), rest1 = static_cast<float>(1 - spec.beta1);
  const auto beta2 = static_cast<float>(spec.beta2), rest2 = static_cast<float>(1 - spec.beta2);
  const auto epsilon = static_cast<float>(spec.epsilon);
  const bool decoupled = spec.kind == OptimizerKind::adamw;
  const auto decay = decoupled ? 0.0F : static_cast<float>(spec.weight_decay);
  const auto kept = decoupled ? static_cast<float>(1 - spec.learning_rate * spec.weight_decay) : 1.0F;
  const float* __restrict const value = s.value;
  const float* __restrict const gradient = s.gradient;
  const float* __restrict const mean = s.slots[0];
  const float* __restrict const square = s.slots[1];
  float* __restrict const new_value = s.new_value;
  float* __restrict const new_mean = s.new_slots[0];
  float* __restrict const new_square = s.new_slots[1];
  for (std::size_t i = 0; i < s.size; ++i) {
    const float g = gradient[i] + decay * value[i];
    const float m = beta1 * mean[i] + rest1 * g;
    const float v = beta2 * square[i] + rest2 * g * g;
    new_mean[i] = m;
    new_square[i] = v;
    new_value[i] = kept * value[i] - step_size * (m / (std::sqrt(v) * root_correction + epsilon));
  }
}

void adagrad(const OptimizerSpec& spec, std::uint64_t step, const Stretch& s) {
  const auto rate =
      static_cast<float>(spec.learning_rate / (1 + static_cast<double>(step - 1) * spec.learning_rate_decay));
  const auto decay = static_cast<float>(spec.weight_decay);
  const auto epsilon = static_cast<float>(spec.epsilon);
  const float* __restrict const value = s.value;
  const float* __restrict const gradient = s.gradient;
  const float* __restrict const sum = s.slots[0];
  float* __restrict const new_value = s.new_value;
  float* __restrict const new_sum = s.new_slots[0];
  for (std::size_t i = 0; i < s.size; ++i) {
    const float g = gradient[i] + decay * value[i];
    const float total = sum[i] + g * g;
    new_sum[i] = total;
    new_value[i] = value[i] - rate * (g / (std::sqrt(total) + epsilon));
  }
}

}  // namespace

int slots_of(const OptimizerSpec& spec) {
  switch (spec.kind) {
    case OptimizerKind::sgd:
      return spec.momentum == 0 ? 0 : 1;
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return 2;
    case OptimizerKind::adagrad:
      return 1;
  }
  return 0;
}

const char* to_text(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::sgd:
      return "SGD";
    case OptimizerKind::adam:
      return "Adam";
    case OptimizerKind::adamw:
      return "AdamW";
    case OptimizerKind::adagrad:
      return "Adagrad";
  }
  return "of an unknown kind";
}

void check(const OptimizerSpec& spec, bool of_rows, const std::string& from) {
  const auto within = [&](const char* what, double value, double below) {
    if (value >= 0 && value < below) return;  // false for NaN
    throw UsageError(str(from, ": the optimizer's ", what, " ", value, " is not from 0 to below ", below));
  };
  if (spec.kind > OptimizerKind::adagrad) {
    throw UsageError(
        str(from, ": optimizer number ", static_cast<std::uint32_t>(spec.kind), " is of no known kind"));
  }
  constexpr double kAny = 1e30;
  within("learning rate", spec.learning_rate, kAny);
  within("weight decay", spec.weight_decay, kAny);
  within("momentum", spec.momentum, kAny);
  within("dampening", spec.dampening, kAny);
  within("beta1", spec.beta1, 1);
  within("beta2", spec.beta2, 1);
  within("epsilon", spec.epsilon, kAny);
  within("decay of the learning rate", spec.learning_rate_decay, kAny);
  within("initial accumulator", spec.initial_accumulator, kAny);
  if (of_rows && spec.weight_decay != 0) {
    throw UsageError(str(from, ": weight decay ", spec.weight_decay,
                         " is not supported with sparse gradients: it would change rows without a gradient"));
  }
}

void update(const OptimizerSpec& spec, std::uint64_t step, const Stretch& stretch) {
  switch (spec.kind) {
    case OptimizerKind::sgd:
      return sgd(spec, step, stretch);
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return adam(spec, step, stretch);
    case OptimizerKind::adagrad:
      return adagrad(spec, step, stretch);
  }
}

bool all_finite(std::span<const float> values) {
  // Only infinities and NaNs have all exponent bits set. Integer operations, so that the loop vectorises.
  constexpr std::uint32_t kExponent = 0x7f800000U;
  std::uint32_t found = 0;
  for (const float value : values)
    found |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent);
  return found == 0;
}

}  // namespace rondo::server
