#pragma once

#include <atomic>

namespace rondo {

// Counts the floating-point operations of matrix products, convolutions and fused attention that this rank
// runs with gradients enabled during the object's lifetime: those of forward passes, because backward passes
// and optimizers run without. (A recomputation by activation checkpointing is counted instead of the first
// forward.) The rank, with all its replicas, is that of the thread that creates the object
// (rondo/base/replica.h). Several objects count independently. Any thread.
class ProductFlops {
 public:
  ProductFlops();
  ~ProductFlops();
  ProductFlops(const ProductFlops&) = delete;
  ProductFlops& operator=(const ProductFlops&) = delete;

  double count() const;  // operations so far; a multiplication with an addition counts as two

 private:
  friend class FlopsCounters;

  int rank_;  // its replica
  std::atomic<double> flops_{0};
};

}  // namespace rondo
