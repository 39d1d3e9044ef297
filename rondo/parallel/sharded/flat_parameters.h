#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "rondo/nn/partition.h"
#include "rondo/parallel/sharded/buffer_pool.h"
#include "rondo/parallel/sharded/flat_layout.h"

namespace rondo {

// Parameters of one unit, of one dtype and device, as views of one flat buffer. The model's own tensors stay
// the same objects; their memory becomes the buffer's. One thread.
class FlatParameters {
 public:
  enum class Memory {
    whole,     // every rank has all of the buffer, always
    gathered,  // the buffer has memory only between allocate() and release(); each rank keeps its shard apart
    mapped,    // one buffer in shared memory for all ranks of the host
  };

  // `unit` is for messages. Copies the parameters' values. `mapped_flat` is the shared buffer of
  // Memory::mapped, undefined otherwise; its values are written by the rank for which `fills` is true.
  FlatParameters(std::string unit, std::vector<ModelTensor> parameters, FlatLayout layout, int rank,
                 Memory memory, at::Tensor mapped_flat = {}, bool fills = true);

  const std::vector<ModelTensor>& parameters() const { return parameters_; }
  const FlatLayout& layout() const { return layout_; }
  Memory memory() const { return memory_; }

  // This rank's shard, [shard_elements]: what the optimizer changes. Part of the buffer unless gathered.
  const at::Tensor& shard() const { return shard_; }
  // Block `block` of the shard of `rank` within the buffer. The buffer must have memory.
  at::Tensor block_in_flat(int rank, std::size_t block) const;
  // Block `block` of this rank's shard.
  at::Tensor block_in_shard(std::size_t block) const;

  // Whether the buffer has memory.
  bool allocated() const { return allocated_; }
  // Memory::gathered only, nothing otherwise. allocate() leaves values unspecified. After release() whoever
  // reads a parameter gets an error that names the unit.
  void allocate(BufferPool& buffers);
  void release(BufferPool& buffers);

  // The buffer has memory, and its values were changed from outside: the shard takes them over.
  void adopt_values();

 private:
  std::string unit_;
  std::vector<ModelTensor> parameters_;
  FlatLayout layout_;
  int rank_;
  Memory memory_;
  at::Tensor flat_;
  at::Tensor shard_;
  std::size_t bytes_;
  bool allocated_ = true;
};

}  // namespace rondo
