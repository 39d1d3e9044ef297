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

// Tensors of this rank in memory-mapped files below a directory: what CPU offload means where the device is
// the CPU. Each call makes one file, which nobody else sees and nothing is left of (FileMemory). One thread.
class OffloadFiles {
 public:
  // Makes the directory where there is none. Throws UsageError when it cannot be written.
  OffloadFiles(std::filesystem::path directory, int rank);

  // [elements], zero, in a file of its own. `what` is for messages. Throws Error when the disk is full.
  at::Tensor zeros(std::int64_t elements, const at::TensorOptions& options, const std::string& what);
  // Moves the memory behind everything that `optimizer` keeps by element into one file, what is in one
  // already excepted. The tensors stay the same objects. The optimizer is one of those that can be sharded.
  void take_over(torch::optim::Optimizer& optimizer);

 private:
  void move(const std::vector<at::Tensor>& tensors, const std::string& what);
  std::filesystem::path next_file();

  std::filesystem::path directory_;
  int rank_;
  int files_ = 0;
};

// Memory for gathered parameters and travelling gradients, used again and again: with a plain allocator each
// pass would touch fresh pages, which costs as much as the copy. One thread.
class BufferPool {
 public:
  // Whether buffers wait for their next use; if not they are freed, so that memory in use is what is needed.
  void keep_free(bool keep) { keeps_ = keep; }

  // At least `bytes`, contents unspecified; `label` says what they are for.
  c10::DataPtr take(std::size_t bytes, c10::Device device, MemoryLabel label);
  void give_back(c10::DataPtr memory, std::size_t bytes);

  // The same as a tensor of one dimension that owns its memory alone; give_back takes it from all its views.
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

// One tensor in shared memory that all ranks of a group on one host see: a model's parameters once per host
// instead of once per rank. It lies in the registered memory of rank `owner` and stays until the group
// closes, since a rank may read it after its owner is through with the model. Tracked memory of every rank
// has an equal part of it. Collective. Undefined, on every rank, where the engine cannot:
// EngineTraits::parameters_in_place.
at::Tensor map_buffer(const Group& group, int owner, std::int64_t elements, const at::TensorOptions& options);

}  // namespace rondo
