#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace rondo {

// The tensors of one call of a collective, as far as memory is concerned. They stay the caller's.
struct TouchedTensors {
  std::span<const at::Tensor> inputs = {};   // only read
  std::span<const at::Tensor> outputs = {};  // written, or read and written
  // The rank, of `ranks`: its own piece of the inputs and its own piece of the outputs may be one and the
  // same memory. A tensor that holds a piece a rank counts as its pieces.
  int rank = 0;
  int ranks = 1;
};

// Every element that an operation writes is written for one reason only: throws UsageError, naming the
// operation and the tensors, where two outputs overlap, an output overlaps an input (except that a rank's own
// piece may be in place), or elements of one output share memory. Looks at elements, not at ranges: columns
// of one matrix do not overlap.
void check_overlaps(const TouchedTensors& tensors, const char* operation);

}  // namespace rondo
