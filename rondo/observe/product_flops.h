#pragma once

#include <cstdint>

namespace rondo {

// Counts the floating-point operations of matrix products, convolutions and fused attention that this process
// computes with gradients enabled while the object lives: of forward passes, since backward passes and
// optimizers compute without. (What activation checkpointing computes again counts in place of its first
// time.) Several objects at a time count each for itself. Any thread.
class ProductFlops {
 public:
  ProductFlops();
  ~ProductFlops();
  ProductFlops(const ProductFlops&) = delete;
  ProductFlops& operator=(const ProductFlops&) = delete;

  double count() const;  // until now; two for each multiplication and addition

 private:
  std::uint64_t callback_;
  double before_;
};

}  // namespace rondo
