#pragma once

#include <atomic>

namespace rondo {

// Counts the floating-point operations of matrix products, convolutions and fused attention that this rank
// computes with gradients enabled while the object lives: of forward passes, since backward passes and
// optimizers compute without. (What activation checkpointing computes again counts in place of its first
// time.) The rank is that of the thread that makes the object (rondo/base/replica.h), with all its replicas.
// Several objects at a time count each for itself. Any thread.
class ProductFlops {
 public:
  ProductFlops();
  ~ProductFlops();
  ProductFlops(const ProductFlops&) = delete;
  ProductFlops& operator=(const ProductFlops&) = delete;

  double count() const;  // until now; two for each multiplication and addition

 private:
  friend class FlopsCounters;

  int rank_;  // its replica
  std::atomic<double> flops_{0};
};

}  // namespace rondo
