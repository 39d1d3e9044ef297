#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rondo/memory/scope.h"
#include "rondo/nn/shard.h"
#include "rondo/nn/unit_state.h"
#include "rondo/parallel/sharded/unit_memory.h"

namespace rondo {

// A half-open range of elements.
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

// Where the parameters of a unit lie in its flat buffer, which part of it each rank owns, and in which blocks
// it travels. Positions are in elements.
//
// Parameters follow one another, each at a multiple of kAlignment; the end is padded so that every rank owns
// an equally long, contiguous shard: rank r has [r, r + 1) * shard_elements(). A block is the same range of
// every rank's shard, so every rank takes an equal part in every block's communication.
class FlatLayout {
 public:
  // Parameters begin on cache lines (16 float32), shards too.
  static constexpr std::int64_t kAlignment = 16;

  // `block_elements`: about how many elements of the flat buffer one block moves; 0 for a single block.
  FlatLayout(std::span<const std::int64_t> parameter_elements, int ranks, std::int64_t block_elements = 0);

  int ranks() const { return ranks_; }
  std::size_t parameters() const { return places_.size(); }
  std::int64_t flat_elements() const { return shard_elements_ * ranks_; }
  std::int64_t shard_elements() const { return shard_elements_; }
  ElementRange shard(int rank) const { return {shard_elements_ * rank, shard_elements_ * (rank + 1)}; }
  // Range of the flat buffer that parameter `index` fills.
  ElementRange place(std::size_t index) const { return places_[index]; }
  // The part of parameter `index` that `rank` owns: the range within the parameter, and where it begins in
  // the rank's shard. May be empty.
  struct Slice {
    ElementRange of_parameter;
    std::int64_t in_shard = 0;
  };
  Slice slice(std::size_t index, int rank) const;

  // Number of blocks, and the range of every rank's shard that block `index` moves.
  std::size_t blocks() const { return blocks_; }
  ElementRange block(std::size_t index) const;

 private:
  int ranks_;
  std::vector<ElementRange> places_;
  std::int64_t shard_elements_ = 0;
  std::int64_t block_shard_elements_ = 0;  // of each shard, in every block but perhaps the last
  std::size_t blocks_ = 1;
};

class OffloadFiles;

// Parameters of one unit, of one dtype and device, as views of one flat buffer. The model's own tensors stay
// the same objects; their memory becomes the buffer's. One thread.
//
// The buffer may have another dtype, of lower precision, than the parameters were made in: the model then
// computes in it, and what the optimizer changes are master weights in the first dtype, kept apart.
class FlatParameters {
 public:
  enum class Memory {
    whole,     // every rank has all of the buffer, always
    gathered,  // the buffer has memory only between allocate() and release(); each rank keeps its shard apart
    mapped,    // one buffer in shared memory for all ranks of the host
  };

  struct Spec {
    std::string unit;  // for messages
    int rank = 0;
    Memory memory = Memory::whole;
    at::ScalarType compute = at::kFloat;  // of the buffer
    bool owns_all = false;                // the optimizer changes all of the parameters and not a shard
    at::Tensor mapped_flat = {};          // the shared buffer of Memory::mapped
    bool fills = true;                    // this rank writes the values of the buffer
    OffloadFiles* files = nullptr;        // for what is kept apart; null: in memory
  };

  // Copies the parameters' values.
  FlatParameters(std::vector<ModelTensor> parameters, FlatLayout layout, Spec spec);

  const std::vector<ModelTensor>& parameters() const { return parameters_; }
  const FlatLayout& layout() const { return layout_; }
  Memory memory() const { return spec_.memory; }
  // Whether the optimizer changes master weights of another dtype than the buffer's.
  bool has_masters() const { return shard_.scalar_type() != flat_.scalar_type(); }
  at::ScalarType master_dtype() const { return shard_.scalar_type(); }

  // Returns the part of parameter `index` that the optimizer changes: flat (see shaped()), or all of it in
  // its shape where this rank owns all.
  at::Tensor optimized(std::size_t index) const;
  // The flat `part` of parameter `index` with as many dimensions as the parameter has, as
  // Shard::local_sizes() says: rules for an optimizer's groups such as `p.dim() >= 2` hold for it too.
  at::Tensor shaped(const at::Tensor& part, std::size_t index) const;
  // Block `block` of the shard of `rank` within the buffer. The buffer must have memory.
  at::Tensor block_in_flat(int rank, std::size_t block) const;
  // Block `block` of this rank's shard in the buffer's dtype, after publish().
  at::Tensor block_to_send(std::size_t block) const;

  // Whether the buffer has memory.
  bool allocated() const { return allocated_; }
  // Memory::gathered only, nothing otherwise. allocate() leaves values unspecified. After release() whoever
  // reads a parameter gets an error that names the unit.
  void allocate(BufferPool& buffers);
  void release(BufferPool& buffers);
  // Memory::whole only, nothing otherwise. Until reveal(), a read of a parameter through the model is an
  // error that names the unit: values are out of date. The optimizer and gathers have the buffer itself.
  void conceal();
  void reveal();
  // A parameter whose memory is no longer the buffer's, since somebody gave it other memory; null: none.
  const ModelTensor* moved() const;
  // One that has another dtype or number of elements than the buffer's; null: none.
  const ModelTensor* converted() const;
  // What the master weights have become, rounded, goes to its place in the buffer, which must have memory.
  void publish();

  // Keeps a copy of the buffer's shards [first, first + count) when it is released, for a gather among fewer
  // ranks; and forgets it. `index` counts from `first`.
  void keep(int first, int count, BufferPool& buffers);
  bool keeps() const { return kept_.defined(); }
  at::Tensor block_in_kept(int index, std::size_t block) const;
  void drop_kept(BufferPool& buffers);

  // The buffer's values were changed from outside: what is kept apart takes them over. A master stays where
  // the buffer has its rounding.
  void reload_shards();
  // `local`, which has what this rank optimises of parameter `index`, with its place in the full parameter.
  Shard shard(std::size_t index, const at::Tensor& local) const;
  // The model's tensors get memory of their own, of unspecified values, in the dtype of the masters.
  void give_back();
  // Whether changes of the full parameters reach what the optimizer changes by reload_shards() alone.
  bool apart() const { return spec_.memory == Memory::gathered || has_masters(); }

 private:
  // The part of parameter `index` that is in shard_, and where.
  FlatLayout::Slice own_slice(std::size_t index) const;
  // The buffer as the model has it.
  at::Tensor as_the_models(const at::Tensor& flat);

  std::vector<ModelTensor> parameters_;
  FlatLayout layout_;
  Spec spec_;
  MemoryUnit unit_;
  at::Tensor flat_;
  c10::Storage model_storage_;  // of the model's tensors; Memory::whole: another one, of the same memory
  bool concealed_ = false;
  ElementRange own_;  // of the buffer, what shard_ is
  at::Tensor shard_;  // what the optimizer changes; a part of flat_ unless apart()
  at::Tensor kept_;
  std::size_t bytes_;  // of flat_
  bool allocated_ = true;
};

}  // namespace rondo
