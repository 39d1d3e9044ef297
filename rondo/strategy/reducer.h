#pragma once

#include <ATen/core/Tensor.h>

namespace rondo {

// Gradients in, synchronised gradients out: the two methods that a scheme of gradient reduction needs.
class Reducer {
 public:
  virtual ~Reducer() = default;

  // Called from backward when the gradient of `parameter` is complete; may start communication, must not wait
  // for it. The engine's thread calls it, one call at a time.
  virtual void add(at::Tensor& parameter) = 0;

  // Called once after backward; on return every gradient that was added is synchronised. Throws
  // CommunicationError.
  virtual void finalize() = 0;
};

}  // namespace rondo
