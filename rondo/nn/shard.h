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
  std::int64_t end = 0;                               // behind the last one
  std::int64_t size() const { return end - begin; }   // in elements
  bool operator==(const FlatRange&) const = default;  // whether both are the same elements
};

// Indices of a tensor: `sizes[d]` of them from `offsets[d]` on, in each dimension d.
struct Box {
  std::vector<std::int64_t> offsets;            // of the first index, by dimension
  std::vector<std::int64_t> sizes;              // how many, by dimension
  std::int64_t elements() const;                // in all
  bool operator==(const Box&) const = default;  // whether both are the same indices
};

// A piece of a tensor with its address in the full tensor: the box of `sizes` at `offsets`, or, with
// `within`, that range of the box's elements in row-major order. As in Megatron Core's dist_checkpointing;
// PyTorch's distributed checkpoints know boxes alone.
struct Shard {
  std::string name = {};                        // of the tensor; the same wherever there is a piece of it
  std::vector<std::int64_t> global_sizes = {};  // shape of the full tensor
  std::vector<std::int64_t> offsets = {};       // of the box in the full tensor
  std::vector<std::int64_t> sizes = {};         // of the box
  std::optional<FlatRange> within = {};         // all of the box where it is empty
  at::Tensor local =
      {};           // the elements, of local_sizes(); with `within` flat ones do too. Undefined: an address
  int replica = 0;  // number of this copy among all processes that hold the same elements
  // The first dimension is so many equal blocks (3: query, key and value of one projection): the address is
  // the box of each, with `offsets` in a block, and `local` has them one after the other.
  std::int64_t blocks = 1;

  std::int64_t elements() const;  // that `local` has
  // The shape of `local`. With `within` n elements are [n, 1, ...], of as many dimensions as the tensor.
  std::vector<std::int64_t> local_sizes() const;
};

// All of a tensor.
Shard full_shard(std::string name, const at::Tensor& tensor, int replica = 0);
// Elements [begin, begin + local.numel()) of a tensor of shape `global_sizes`.
Shard flat_shard(std::string name, std::vector<std::int64_t> global_sizes, std::int64_t begin,
                 const at::Tensor& local, int replica = 0);

// Whether both are the same elements of tensors of one shape; names, values and copies do not matter.
bool same_address(const Shard& a, const Shard& b);
// "[3, 4]", "[1, 4] at [2, 0] of [3, 4]", "elements [5, 9) of [3, 4]": where a shard is.
std::string describe_address(const Shard& shard);
// What is wrong with a shard whose box leaves the full tensor, whose range leaves the box, or whose `local`
// has other elements; empty when nothing is.
std::string fault_of(const Shard& shard);

// The elements of a shard as boxes of the full tensor that do not overlap, in the order in which `local` has
// them: one box, or up to 2 * dimensions - 1 with `within`, and up to blocks + 1 more of
// several blocks. None without elements. As veScale does.
std::vector<Box> boxes_of(const Shard& shard);
// The elements of `box`, which lies in one of boxes_of(shard), as a view of `local` of shape `box.sizes`.
// Throws UsageError for a box that does not.
at::Tensor view_of(const Shard& shard, const Box& box);

// The indices that are in both; empty where there is none.
std::optional<Box> overlap(const Box& a, const Box& b);
// What of `box` is not in `hole`, as boxes that do not overlap; `hole` lies in `box`.
std::vector<Box> without(const Box& box, const Box& hole);
// What of the boxes is not in the shard; `found` is told of what is, box by box.
std::vector<Box> beside(const std::vector<Box>& boxes, const Shard& shard,
                        const std::function<void(const Box&)>& found = {});

// The part of the full tensor that the shard is an address of: a view where memory allows.
at::Tensor cut(const at::Tensor& full, const Shard& address);

// A shard's address as JSON: {"name", "full", "offsets", "sizes"}, and "within" and "blocks" where they say
// something. What ranks tell each other, and what files of pieces hold.
nlohmann::json address_to_json(const Shard& shard);
// The address alone; further keys are passed over. Throws DataError naming a key that is missing or of
// another type.
Shard address_from_json(const nlohmann::json& address);

}  // namespace rondo
