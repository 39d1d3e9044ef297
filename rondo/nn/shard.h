#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace rondo {

// Elements [begin, end) of a box, counted in row-major order.
struct FlatRange {
  std::int64_t begin = 0;                             // the first element
  std::int64_t end = 0;                               // end, exclusive
  std::int64_t size() const { return end - begin; }   // number of elements
  bool operator==(const FlatRange&) const = default;  // equal ranges
};

// A box of indices of a tensor: `sizes[d]` indices from `offsets[d]` in each dimension d.
struct Box {
  std::vector<std::int64_t> offsets;            // first index of each dimension
  std::vector<std::int64_t> sizes;              // number of indices of each dimension
  std::int64_t elements() const;                // number of elements
  bool operator==(const Box&) const = default;  // equal boxes
};

// A piece of a tensor with its address in the full tensor: the box of `sizes` at `offsets` or, with `within`,
// that range of the box's elements in row-major order. As in Megatron Core's dist_checkpointing; PyTorch's
// distributed checkpoints support boxes only.
struct Shard {
  std::string name = {};                        // tensor's name, the same for all its pieces
  std::vector<std::int64_t> global_sizes = {};  // shape of the full tensor
  std::vector<std::int64_t> offsets = {};       // position of the box in the full tensor
  std::vector<std::int64_t> sizes = {};         // shape of the box
  std::optional<FlatRange> within = {};         // range inside the box; empty: the whole box
  // Elements, in the shape local_sizes(); with `within` a flat tensor is valid too. Undefined for a bare
  // address.
  at::Tensor local = {};
  int replica = 0;  // index of this copy among the processes with the same elements
  // Number of equal blocks of the first dimension (3: query, key and value of one projection). The address is
  // the box in each block, with `offsets` relative to a block; `local` has the blocks' boxes one after the
  // other.
  std::int64_t blocks = 1;

  std::int64_t elements() const;  // number of elements of `local`
  // Returns the shape of `local`. With `within` n elements are [n, 1, ...], with as many dimensions as the
  // tensor.
  std::vector<std::int64_t> local_sizes() const;
};

// Returns a shard that is the whole tensor.
Shard full_shard(std::string name, const at::Tensor& tensor, int replica = 0);
// Returns the shard with elements [begin, begin + local.numel()) of a tensor of shape `global_sizes`.
Shard flat_shard(std::string name, std::vector<std::int64_t> global_sizes, std::int64_t begin,
                 const at::Tensor& local, int replica = 0);

// Returns whether both address the same elements of tensors of one shape; names, values and copies are not
// compared.
bool same_address(const Shard& a, const Shard& b);
// Returns a shard's address as text: "[3, 4]", "[1, 4] at [2, 0] of [3, 4]", "elements [5, 9) of [3, 4]".
std::string describe_address(const Shard& shard);
// Returns an error text if the box leaves the full tensor, the range leaves the box, or `local` has another
// shape; empty for a valid shard.
std::string fault_of(const Shard& shard);

// Returns the elements of a shard as non-overlapping boxes of the full tensor, in the order of `local`. One
// box, up to 2 * dimensions - 1 with `within`, and up to blocks + 1 more for several blocks. Empty for a
// shard without elements. Source: veScale.
std::vector<Box> boxes_of(const Shard& shard);
// Returns the elements of `box`, which lies inside one of boxes_of(shard), as a view of `local` of shape
// `box.sizes`. Throws UsageError for any other box.
at::Tensor view_of(const Shard& shard, const Box& box);

// Returns the indices that are in both; empty if there are none.
std::optional<Box> overlap(const Box& a, const Box& b);
// Returns `box` without `hole` as non-overlapping boxes; `hole` lies inside `box`.
std::vector<Box> without(const Box& box, const Box& hole);
// Returns the boxes without the shard's elements, and calls `found` with each overlap.
std::vector<Box> beside(const std::vector<Box>& boxes, const Shard& shard,
                        const std::function<void(const Box&)>& found = {});

// Returns the part of the full tensor at the shard's address: a view if the memory layout allows it.
at::Tensor cut(const at::Tensor& full, const Shard& address);

// Returns a shard's address as JSON: {"name", "full", "offsets", "sizes"}, and "within" and "blocks" if they
// are set. Ranks exchange it, and files of pieces contain it.
nlohmann::json address_to_json(const Shard& shard);
// Reads an address; other keys are ignored. Throws DataError naming a key that is missing or has another
// type.
Shard address_from_json(const nlohmann::json& address);

}  // namespace rondo
