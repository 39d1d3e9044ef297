#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace rondo::server {

enum class OptimizerKind : std::uint32_t { sgd, adam, adamw, adagrad };

// Optimizer of a push, with libtorch's names and formulas. Sent with every push, so that the learning rate
// may change in every step.
struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::sgd;
  std::uint32_t nesterov = 0;      // sgd
  double learning_rate = 1e-3;     // all
  double weight_decay = 0;         // adamw: decoupled; others: added to the gradient
  double momentum = 0;             // sgd
  double dampening = 0;            // sgd
  double beta1 = 0.9;              // adam, adamw
  double beta2 = 0.999;            // adam, adamw
  double epsilon = 1e-8;           // adam, adamw, adagrad
  double learning_rate_decay = 0;  // adagrad
  double initial_accumulator = 0;  // adagrad
};

// Maximum number of state values that an optimizer keeps per element.
inline constexpr int kMostSlots = 2;
int slots_of(const OptimizerSpec& spec);
const char* to_text(OptimizerKind kind);

// Throws UsageError naming the invalid figure: a negative rate, a beta of 1 or more, NaN. `from` names the
// sender. Refuses weight decay for rows, because it would change rows that no gradient names.
void check(const OptimizerSpec& spec, bool of_rows, const std::string& from);

// A range of a variable: its old values and the destination of the new ones. New and old values never
// overlap, so an update can be repeated.
struct Stretch {
  const float* value;
  const float* slots[kMostSlots];  // slots_of() pointers
  const float* gradient;
  float* new_value;
  float* new_slots[kMostSlots];
  std::size_t size;  // number of elements
};

// Computes one update; `step` is the number of the variable's update, from 1.
void update(const OptimizerSpec& spec, std::uint64_t step, const Stretch& stretch);

bool all_finite(std::span<const float> values);

}  // namespace rondo::server
