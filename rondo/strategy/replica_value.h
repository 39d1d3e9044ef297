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
  // Of one replica.
  ReplicaValue(at::Tensor tensor) : tensors_{std::move(tensor)} {}  // NOLINT(google-explicit-constructor)
  // One tensor a replica.
  explicit ReplicaValue(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {}

  const std::vector<at::Tensor>& tensors() const { return tensors_; }  // by replica
  std::size_t size() const { return tensors_.size(); }                 // replicas of this process
  // Of a process with one replica; throws UsageError when there are more, or none.
  const at::Tensor& only() const;

 private:
  std::vector<at::Tensor> tensors_;
};

}  // namespace rondo
