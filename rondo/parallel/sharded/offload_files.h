#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

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

}  // namespace rondo
