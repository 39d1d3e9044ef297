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
  // Holds the tensor of one replica.
  ReplicaValue(at::Tensor tensor) : tensors_{std::move(tensor)} {}  // NOLINT(google-explicit-constructor)
  // Holds one tensor for each replica.
  explicit ReplicaValue(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {}

  const std::vector<at::Tensor>& tensors() const { return tensors_; }  // in replica order
  std::size_t size() const { return tensors_.size(); }                 // replicas of this process
  // Returns the tensor of a process with one replica. Throws UsageError if there are several or none.
  const at::Tensor& only() const;

 private:
  std::vector<at::Tensor> tensors_;
};

}  // namespace rondo
