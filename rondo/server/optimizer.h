#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace rondo::server {

enum class OptimizerKind : std::uint32_t { sgd, adam, adamw, adagrad };

// How a push changes a variable. Names and formulas are libtorch's; it travels with every push, so that rates
// may change from step to step.
struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::sgd;
  std::uint32_t nesterov = 0;      // sgd
  double learning_rate = 1e-3;     // all
  double weight_decay = 0;         // adamw: of the weights; others: added to the gradient
  double momentum = 0;             // sgd
  double dampening = 0;            // sgd
  double beta1 = 0.9;              // adam, adamw
  double beta2 = 0.999;            // adam, adamw
  double epsilon = 1e-8;           // adam, adamw, adagrad
  double learning_rate_decay = 0;  // adagrad
  double initial_accumulator = 0;  // adagrad
};

// What an optimizer keeps for each element: none, one number or two.
inline constexpr int kMostSlots = 2;
int slots_of(const OptimizerSpec& spec);
const char* to_text(OptimizerKind kind);

// Throws UsageError naming the figure that cannot be: a negative rate, a beta that is not below 1, NaN.
// `from` names who sent it. Of rows no weight decay can be: it would change rows that nobody named.
void check(const OptimizerSpec& spec, bool of_rows, const std::string& from);

// A stretch of a variable: what it holds, and where it goes. The new values never overlap the old ones, so
// that an update can be done again.
struct Stretch {
  const float* value;
  const float* slots[kMostSlots];  // as many as slots_of() says
  const float* gradient;
  float* new_value;
  float* new_slots[kMostSlots];
  std::size_t size;  // elements
};

// One update; `step` counts the variable's, from 1.
void update(const OptimizerSpec& spec, std::uint64_t step, const Stretch& stretch);

bool all_finite(std::span<const float> values);

}  // namespace rondo::server
