#pragma once

#include <cstdint>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/shard.h"

namespace rondo {

// A tensor of which each rank of a group holds a box, for code of one's own beside a strategy: PyTorch's
// DTensor with Shard(dimension), without operations on it. A value; copies share the elements. One thread
// uses an object.
class ShardedTensor {
 public:
  // `local` is this rank's box at `offsets` of a tensor of shape `sizes`; it may be empty. Copies are
  // allowed: several ranks may hold the same elements.
  ShardedTensor(std::vector<std::int64_t> sizes, std::vector<std::int64_t> offsets, at::Tensor local,
                Group group);

  // Keeps of `full`, which all ranks have, this rank's part of `dimension`: equal parts but for the last
  // ranks, as torch.chunk.
  static ShardedTensor of_full(const at::Tensor& full, std::int64_t dimension, const Group& group);
  // Which part that is, of a tensor of shape `sizes` on `ranks` ranks.
  static Box part_along(const std::vector<std::int64_t>& sizes, std::int64_t dimension, int rank, int ranks);

  const std::vector<std::int64_t>& sizes() const { return sizes_; }  // of the full tensor
  const Box& box() const { return box_; }                            // of the full tensor, that is here
  const at::Tensor& local() const { return local_; }                 // the elements, of shape box().sizes

  // The full tensor on every rank. Collective. Throws UsageError on all ranks for elements that no rank
  // holds.
  at::Tensor full() const;
  // The same tensor where each rank holds the box that it asks for, perhaps an empty one. Collective. Throws
  // as full() does.
  ShardedTensor redistribute(const Box& wanted) const;
  // The same in parts along another dimension. Collective.
  ShardedTensor redistribute(std::int64_t dimension) const;

 private:
  std::vector<std::int64_t> sizes_;
  Box box_;
  at::Tensor local_;
  Group group_;
};

}  // namespace rondo
