#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <filesystem>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/memory/scope.h"

namespace torch::optim {
class Optimizer;
}

namespace rondo {

// Allocates tensors of this rank in memory-mapped files below a directory, the equivalent of CPU offload on a
// CPU device. Each call makes one file, which is private and removed automatically (FileMemory). Not
// thread-safe.
class OffloadFiles {
 public:
  // Creates the directory if it does not exist. Throws UsageError if it is not writable.
  OffloadFiles(std::filesystem::path directory, int rank);

  // Returns a tensor of shape [elements], zeros, in a new file. `what` is for messages. Throws Error if the
  // disk is full.
  at::Tensor zeros(std::int64_t elements, const at::TensorOptions& options, const std::string& what);
  // Moves the memory of all tensors in the optimizer's state into one file, except those already in a file.
  // The tensors stay the same objects. The optimizer must be of a kind that can be sharded.
  void take_over(torch::optim::Optimizer& optimizer);

 private:
  void move(const std::vector<at::Tensor>& tensors, const std::string& what);
  std::filesystem::path next_file();

  std::filesystem::path directory_;
  int rank_;
  int files_ = 0;
};

// A pool of buffers for gathered parameters and gradients in flight. Reuse avoids touching fresh pages in
// each pass, which costs as much as the copy. Not thread-safe.
class BufferPool {
 public:
  // Sets whether free buffers are kept for reuse. Otherwise they are freed, so that memory in use equals
  // memory needed.
  void keep_free(bool keep) { keeps_ = keep; }

  // Returns at least `bytes` with unspecified contents; `label` is for the memory tracker.
  c10::DataPtr take(std::size_t bytes, c10::Device device, MemoryLabel label);
  void give_back(c10::DataPtr memory, std::size_t bytes);

  // Like above, for a tensor of one dimension with memory of its own. give_back() takes the memory from all
  // its views.
  at::Tensor take(std::int64_t elements, const at::TensorOptions& options, MemoryLabel label);
  void give_back(const at::Tensor& tensor);

 private:
  struct Free {
    c10::DataPtr memory;
    std::size_t bytes;
  };
  std::vector<Free> free_;
  bool keeps_ = true;
};

// Returns a tensor in shared memory that all ranks of a group on one host access: parameters once per host
// instead of once per rank. The tensor is in the registered memory of rank `owner` until the group closes,
// since a rank may read it after its owner has destroyed the model. Each rank's tracked memory includes an
// equal part. Collective. Returns an undefined tensor on all ranks if the engine lacks
// EngineTraits::parameters_in_place.
at::Tensor map_buffer(const Group& group, int owner, std::int64_t elements, const at::TensorOptions& options);

}  // namespace rondo
