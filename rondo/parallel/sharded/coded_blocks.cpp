#include "rondo/parallel/sharded/coded_blocks.h"

#include <torch/types.h>

#include "rondo/base/text.h"

namespace rondo {

Bytes codec_memory(const std::string& codec, Bytes gradients, int ranks) {
  if (codec == "none") return {};
  const std::unique_ptr<collective::Codec> made = collective::make_codec(codec);
  const std::uint64_t encodings = 2 * made->encoded_bytes(gradients.count / sizeof(float));  // sent, received
  // What is left out of all gradients, and of this rank's sums.
  const std::uint64_t residuals = gradients.count + gradients.count / static_cast<std::uint64_t>(ranks);
  return Bytes{encodings + (made->needs_residual() ? residuals : 0)};
}

CodedBlocks::CodedBlocks(const std::string& codec, const FlatLayout& layout, const Group& shards,
                         const Group& replicas, bool gathers)
    : gathers_(gathers), blocks_(layout.blocks()) {
  const std::shared_ptr<collective::Codec> shared = collective::make_codec(codec);
  const bool scatters = shards.size() > 1;
  const bool remembers = shared->needs_residual();
  if (remembers && scatters) residual_ = at::zeros({layout.flat_elements()}, at::kFloat);
  if (remembers && scatters && gathers) sum_residual_ = at::zeros({layout.shard_elements()}, at::kFloat);
  for (std::size_t index = 0; index < blocks_.size(); ++index) {
    Block& block = blocks_[index];
    const ElementRange part = layout.block(index);
    if (scatters) block.scatter = std::make_unique<CodedReduceScatter>(shared, shards.backend());
    if (scatters && gathers) block.gather = std::make_unique<CodedAllGather>(shared, shards.backend());
    if (replicas.member() && replicas.size() > 1) {
      block.copies = std::make_unique<CodedAllReduce>(shared, replicas.backend(), ReduceOp::SUM,
                                                      /*error_feedback=*/true);
      block.copies->reserve(at::empty({part.size()}, at::kFloat));
    }
    for (int rank = 0; residual_.defined() && rank < layout.ranks(); ++rank)
      block.residuals.push_back(residual_.narrow(0, layout.shard(rank).begin + part.begin, part.size()));
    if (sum_residual_.defined()) block.sum_residual = sum_residual_.narrow(0, part.begin, part.size());
  }
}

std::vector<BlockStep> CodedBlocks::encode(std::size_t index, const std::vector<at::Tensor>& parts,
                                           const at::Tensor& sum, Bytes bytes) {
  Block& block = blocks_[index];
  std::vector<BlockStep> steps;
  if (block.scatter) {
    block.scatter->encode(parts, block.residuals);
    steps.push_back({"reduce_scatter", bytes, [&block, sum] {
                       return BucketFuture(block.scatter->start()).then([&block, sum](const at::Tensor&) {
                         block.scatter->add(sum);
                         return at::Tensor();
                       });
                     }});
  } else if (!gathers_) {
    sum.copy_(parts.front());
  }
  // One rank has all of the shard: where it is wanted whole, it is combined there.
  const at::Tensor shard = block.scatter || !gathers_ ? sum : parts.front();
  if (block.copies) {
    const auto end = [&block](const at::Tensor&) {
      block.copies->next();
      return at::Tensor();
    };
    const bool has_second = block.copies->messages() > 1;
    steps.push_back({"all_reduce", Bytes{shard.nbytes()}, [&block, shard, end, has_second] {
                       BucketFuture first(block.copies->start(shard));
                       return has_second ? std::move(first) : std::move(first).then(end);
                     }});
    if (has_second) {
      steps.push_back({"all_reduce", Bytes{shard.nbytes()},
                       [&block, end] { return BucketFuture(block.copies->next()).then(end); }});
    }
  }
  if (block.gather) {
    steps.push_back({"all_gather", bytes, [&block, parts, sum] {
                       block.gather->encode(sum, block.sum_residual, static_cast<std::size_t>(sum.numel()));
                       return BucketFuture(block.gather->start()).then([&block, parts](const at::Tensor&) {
                         block.gather->decode(parts);
                         return at::Tensor();
                       });
                     }});
  }
  return steps;
}

std::map<std::string, at::Tensor> CodedBlocks::memory() const {
  std::map<std::string, at::Tensor> memory;
  if (residual_.defined()) memory["residual"] = residual_;
  if (sum_residual_.defined()) memory["sum_residual"] = sum_residual_;
  for (std::size_t index = 0; index < blocks_.size(); ++index) {
    const auto& copies = blocks_[index].copies;
    if (!copies) continue;
    if (copies->residual().defined()) memory[str("copies/", index, "/residual")] = copies->residual();
    if (copies->sum_residual().defined())
      memory[str("copies/", index, "/sum_residual")] = copies->sum_residual();
  }
  return memory;
}

}  // namespace rondo
