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

// The layout of a unit's flat buffer: the range of each parameter, the shard that each rank owns, and the
// segments that are sent. Positions are in elements.
//
// Parameters follow one another, each at a multiple of kAlignment. The end is padded so that all ranks own
// contiguous shards of equal length: rank r has [r, r + 1) * shard_elements(). A segment is the same range of
// every rank's shard, so every rank has an equal part in the communication of each segment.
class FlatLayout {
 public:
  // Alignment of parameters and shards: a cache line (16 float32).
  static constexpr std::int64_t kAlignment = 16;

  // `segment_elements`: approximate number of elements of the flat buffer per segment; 0 for a single
  // segment.
  FlatLayout(std::span<const std::int64_t> parameter_elements, int ranks, std::int64_t segment_elements = 0);

  int ranks() const { return ranks_; }
  std::size_t parameters() const { return places_.size(); }
  std::int64_t flat_elements() const { return shard_elements_ * ranks_; }
  std::int64_t shard_elements() const { return shard_elements_; }
  ElementRange shard(int rank) const { return {shard_elements_ * rank, shard_elements_ * (rank + 1)}; }
  // Returns the range of parameter `index` in the flat buffer.
  ElementRange place(std::size_t index) const { return places_[index]; }
  // The part of a parameter that a rank owns: its range within the parameter, and its offset in the rank's
  // shard. May be empty.
  struct Slice {
    ElementRange of_parameter;
    std::int64_t in_shard = 0;
  };
  Slice slice(std::size_t index, int rank) const;

  // Return the number of segments, and the range of segment `index` within every rank's shard.
  std::size_t segments() const { return segments_; }
  ElementRange segment(std::size_t index) const;

 private:
  int ranks_;
  std::vector<ElementRange> places_;
  std::int64_t shard_elements_ = 0;
  // Length of a segment within each shard; the last segment may be shorter.
  std::int64_t segment_shard_elements_ = 0;
  std::size_t segments_ = 1;
};

class OffloadFiles;

// Parameters of one unit, of one dtype and device, as views of one flat buffer. The model's tensors stay the
// same objects; their memory becomes the buffer's. Not thread-safe.
//
// The buffer may have a lower-precision dtype than the original parameters. The model then computes in that
// dtype, and the optimizer updates master weights in the original dtype, which are kept separately.
class FlatParameters {
 public:
  enum class Memory {
    whole,  // every rank has the whole buffer at all times
    // The buffer has memory only between allocate() and release(); each rank keeps its shard separately.
    gathered,
    mapped,  // one buffer in shared memory for all ranks of the host
  };

  struct Spec {
    std::string unit;  // name of the unit, for messages
    int rank = 0;
    Memory memory = Memory::whole;
    at::ScalarType compute = at::kFloat;  // dtype of the buffer
    bool owns_all = false;          // whether the optimizer updates all of the parameters instead of a shard
    at::Tensor mapped_flat = {};    // shared buffer for Memory::mapped
    bool fills = true;              // whether this rank writes the initial values of the buffer
    OffloadFiles* files = nullptr;  // storage of the separate shard; null: in memory
  };

  // Copies the parameters' values into the buffer.
  FlatParameters(std::vector<ModelTensor> parameters, FlatLayout layout, Spec spec);

  const std::vector<ModelTensor>& parameters() const { return parameters_; }
  const FlatLayout& layout() const { return layout_; }
  Memory memory() const { return spec_.memory; }
  // Returns true if the optimizer updates master weights of another dtype than the buffer's.
  bool has_masters() const { return shard_.scalar_type() != flat_.scalar_type(); }
  at::ScalarType master_dtype() const { return shard_.scalar_type(); }

  // Returns the part of parameter `index` that the optimizer updates: flat (see shaped()), or the whole
  // parameter in its shape if this rank owns all of it.
  at::Tensor optimized(std::size_t index) const;
  // Returns the flat `part` of parameter `index` with as many dimensions as the parameter has, as
  // Shard::local_sizes(). Rules for optimizer groups such as `p.dim() >= 2` then hold for the part too.
  at::Tensor shaped(const at::Tensor& part, std::size_t index) const;
  // Returns segment `segment` of the shard of `rank` within the buffer. The buffer must have memory.
  at::Tensor segment_in_flat(int rank, std::size_t segment) const;
  // Returns segment `segment` of this rank's shard in the buffer's dtype. Call publish() first.
  at::Tensor segment_to_send(std::size_t segment) const;

  // Returns true if the buffer has memory.
  bool allocated() const { return allocated_; }
  // Allocate and free the buffer of Memory::gathered; no-ops for other kinds. allocate() leaves the values
  // unspecified. After release(), reading a parameter is an error that names the unit.
  void allocate(BufferPool& buffers);
  void release(BufferPool& buffers);
  // Forbid and permit reads of the parameters through the model, for Memory::whole; no-ops for other kinds.
  // Between conceal() and reveal() a read is an error that names the unit, because the values are outdated.
  // The optimizer and gathers access the buffer directly.
  void conceal();
  void reveal();
  // Returns a parameter whose memory is no longer the buffer's; null if there is none.
  const ModelTensor* moved() const;
  // Returns a parameter whose dtype or number of elements differs from the buffer's; null if there is none.
  const ModelTensor* converted() const;
  // Copies the master weights, rounded, to their place in the buffer. The buffer must have memory.
  void publish();

  // Copies the buffer's shards [first, first + count) before release(), for a gather among fewer ranks.
  // drop_kept() frees the copy. `index` of segment_in_kept() counts from `first`.
  void keep(int first, int count, BufferPool& buffers);
  bool keeps() const { return kept_.defined(); }
  at::Tensor segment_in_kept(int index, std::size_t segment) const;
  void drop_kept(BufferPool& buffers);

  // Updates the separate shard after the buffer's values were changed from outside. Master weights stay
  // unchanged where the buffer has their rounded value.
  void reload_shards();
  // Returns `local`, this rank's part of parameter `index`, with its position in the full parameter.
  Shard shard(std::size_t index, const at::Tensor& local) const;
  // Gives the model's tensors memory of their own, with unspecified values, in the dtype of the masters.
  void give_back();
  // Returns true if changes of the full parameters reach the optimizer's tensors only by reload_shards().
  bool apart() const { return spec_.memory == Memory::gathered || has_masters(); }

 private:
  // Returns the part of parameter `index` in shard_, and its offset there.
  FlatLayout::Slice own_slice(std::size_t index) const;
  // Returns the buffer for use by the model's tensors, and sets model_storage_.
  at::Tensor as_the_models(const at::Tensor& flat);

  std::vector<ModelTensor> parameters_;
  FlatLayout layout_;
  Spec spec_;
  MemoryUnit unit_;
  at::Tensor flat_;
  // Storage of the model's tensors; Memory::whole: a second storage for the same memory.
  c10::Storage model_storage_;
  bool concealed_ = false;
  ElementRange own_;  // range of shard_ in the buffer
  at::Tensor shard_;  // tensor that the optimizer updates; a part of flat_ unless apart()
  at::Tensor kept_;
  std::size_t bytes_;  // size of flat_
  bool allocated_ = true;
};

}  // namespace rondo
