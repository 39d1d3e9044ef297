#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace rondo {

// One tensor per replica that this process holds, in replica order. A strategy with one replica per process
// has one tensor here, so a plain tensor converts.
class ReplicaValue {
 public:
  ReplicaValue() = default;
  ReplicaValue(at::Tensor tensor) : tensors_{std::move(tensor)} {}  // NOLINT(google-explicit-constructor)
  explicit ReplicaValue(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {}

  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  std::size_t size() const { return tensors_.size(); }

 private:
  std::vector<at::Tensor> tensors_;
};

}  // namespace rondo
