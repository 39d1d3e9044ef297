#pragma once

#include <cstdint>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/shard.h"

namespace rondo {

// A tensor of which each rank of a group holds a box, for custom code beside a strategy: PyTorch's DTensor
// with Shard(dimension), without operations on it. A value; copies share the elements. An object is used by
// one thread.
class ShardedTensor {
 public:
  // `local` is this rank's box at `offsets` of a tensor of shape `sizes`; it may be empty. Several ranks may
  // hold the same elements.
  ShardedTensor(std::vector<std::int64_t> sizes, std::vector<std::int64_t> offsets, at::Tensor local,
                Group group);

  // Keeps this rank's part along `dimension` of `full`, which all ranks have. Parts are equal except those of
  // the last ranks, as in torch.chunk.
  static ShardedTensor of_full(const at::Tensor& full, std::int64_t dimension, const Group& group);
  // Returns the box of rank `rank` of `ranks` in a tensor of shape `sizes` that is divided in this way.
  static Box part_along(const std::vector<std::int64_t>& sizes, std::int64_t dimension, int rank, int ranks);

  const std::vector<std::int64_t>& sizes() const { return sizes_; }  // shape of the full tensor
  const Box& box() const { return box_; }                            // this rank's box of the full tensor
  const at::Tensor& local() const { return local_; }                 // elements, of shape box().sizes

  // Returns the full tensor on every rank. Collective. Throws UsageError on all ranks for elements that no
  // rank holds.
  at::Tensor full() const;
  // Returns the same tensor with each rank holding the box that it requests, which may be empty. Collective.
  // Throws as full() does.
  ShardedTensor redistribute(const Box& wanted) const;
  // Returns the same tensor divided along another dimension. Collective.
  ShardedTensor redistribute(std::int64_t dimension) const;

 private:
  std::vector<std::int64_t> sizes_;
  Box box_;
  at::Tensor local_;
  Group group_;
};

}  // namespace rondo
