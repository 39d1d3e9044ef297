#include "rondo/strategy/sharded_tensor.h"

#include <torch/types.h>

#include <algorithm>
#include <span>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/strategy/shard_directory.h"

namespace rondo {
namespace {

constexpr const char* kShardedTensorName = "sharded tensor";

Shard shard_of_box(const std::vector<std::int64_t>& sizes, const Box& box, const at::Tensor& local) {
  return {.name = kShardedTensorName,
          .global_sizes = sizes,
          .offsets = box.offsets,
          .sizes = box.sizes,
          .local = local};
}

// Returns an empty list for a rank without elements.
std::vector<Shard> shards_of_box(const std::vector<std::int64_t>& sizes, const Box& box,
                                 const at::Tensor& local) {
  if (local.numel() == 0) return {};
  return {shard_of_box(sizes, box, local)};
}

}  // namespace

ShardedTensor::ShardedTensor(std::vector<std::int64_t> sizes, std::vector<std::int64_t> offsets,
                             at::Tensor local, Group group)
    : sizes_(std::move(sizes)),
      box_{std::move(offsets), local.sizes().vec()},
      local_(std::move(local)),
      group_(std::move(group)) {
  if (const std::string fault = fault_of(shard_of_box(sizes_, box_, local_));
      !fault.empty() && local_.numel() > 0)
    throw UsageError(str(kShardedTensorName, ": ", fault));
}

Box ShardedTensor::part_along(const std::vector<std::int64_t>& sizes, std::int64_t dimension, int rank,
                              int ranks) {
  const auto dimensions = static_cast<std::int64_t>(sizes.size());
  if (dimension < 0 || dimension >= dimensions)
    throw UsageError(str(kShardedTensorName, ": dimension ", dimension, " of a tensor with ", dimensions));
  const auto d = static_cast<std::size_t>(dimension);
  const std::int64_t part = (sizes[d] + ranks - 1) / ranks;
  Box box{std::vector<std::int64_t>(sizes.size(), 0), sizes};
  box.offsets[d] = std::min(part * rank, sizes[d]);
  box.sizes[d] = std::min(part, sizes[d] - box.offsets[d]);
  return box;
}

ShardedTensor ShardedTensor::of_full(const at::Tensor& full, std::int64_t dimension, const Group& group) {
  const std::vector<std::int64_t> sizes = full.sizes().vec();
  const Box box = part_along(sizes, dimension, group.rank(), group.size());
  const auto d = static_cast<std::size_t>(dimension);
  return {sizes, box.offsets, full.detach().narrow(dimension, box.offsets[d], box.sizes[d]).clone(), group};
}

at::Tensor ShardedTensor::full() const {
  return ShardDirectory(shards_of_box(sizes_, box_, local_), group_).full(kShardedTensorName);
}

ShardedTensor ShardedTensor::redistribute(const Box& wanted) const {
  const ShardDirectory directory(shards_of_box(sizes_, box_, local_), group_);
  const at::Tensor local = at::empty(wanted.sizes, local_.options());
  std::vector<Shard> shards = shards_of_box(sizes_, wanted, local);
  if (const std::vector<std::string> missing = directory.fetch(shards); !missing.empty())
    throw UsageError(str(kShardedTensorName, ": ", join(missing, "; ")));
  return {sizes_, wanted.offsets, local, group_};
}

ShardedTensor ShardedTensor::redistribute(std::int64_t dimension) const {
  return redistribute(part_along(sizes_, dimension, group_.rank(), group_.size()));
}

}  // namespace rondo
