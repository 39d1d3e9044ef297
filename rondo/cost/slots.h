#pragma once

#include <string>

namespace rondo::cost {

// The compute of one training step in order, one slot a unit's forward or backward. A step begins with the
// update by the gradients of the one before:
//   0                       the update; parameters that it changed travel meanwhile, other gathers after it
//   per micro-batch k       forward of units 0 .. U-1, then backward of units U-1 .. 0
//   epilogue                communication after the last backward, no compute
//   end                     all gradients are there, no compute
struct Slots {
  int units = 0;
  int micro_batches = 1;

  static constexpr int update() { return 0; }
  int forward(int micro_batch, int unit) const { return 1 + 2 * units * micro_batch + unit; }
  int backward(int micro_batch, int unit) const {
    return 1 + 2 * units * micro_batch + units + (units - 1 - unit);
  }
  int epilogue() const { return 1 + 2 * units * micro_batches; }
  int end() const { return epilogue() + 1; }
  int count() const { return end() + 1; }

  // Forward or backward of a unit.
  bool is_compute(int slot) const { return slot > 0 && slot < epilogue(); }
  // Of slots that compute a unit.
  int micro_batch(int slot) const { return (slot - 1) / (2 * units); }
  bool is_forward(int slot) const { return (slot - 1) % (2 * units) < units; }
  int unit(int slot) const {
    const int within = (slot - 1) % (2 * units);
    return within < units ? within : 2 * units - 1 - within;
  }
};

}  // namespace rondo::cost
