#include "rondo/parallel/sharded/unit_gradients.h"

#include <ATen/ScalarOps.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <optional>

#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/text.h"
#include "rondo/parallel/sharded/shard_collectives.h"

namespace rondo {

InPlaceGradients::InPlaceGradients(const std::string& unit, Sharding sharding,
                                   const FlatParameters& parameters, const GradientBuffers& gradient_buffers,
                                   const Group& group, CommunicationQueue& queue)
    : name_(unit),
      unit_(memory_unit(unit)),
      sharding_(sharding),
      parameters_(parameters),
      gradient_buffers_(gradient_buffers),
      rank_(group.rank()),
      queue_(queue) {
  const std::vector<ModelTensor>& gradients = gradient_buffers.tensors();
  for (Bucket& bucket : make_buckets(gradients, plan_in_place(gradients, last_first(gradients.size()))))
    transfers_.push_back(std::make_unique<InPlaceAllReduce>(std::move(bucket), weight_source_, group));
}

void InPlaceGradients::launch(const GradientWeight& weight, const BlockOrder& order) {
  weight_ = weight;
  for (const auto& transfer : transfers_) {
    const Bucket& bucket = transfer->bucket();
    for (std::size_t member = 0; member < bucket.numbers.size(); ++member) transfer->take(member);
    const BlockOrder::Place place = order.of(bucket.index, transfers_.size());
    tickets_.push_back(queue_.submit({.collective = "all_reduce",
                                      .unit = name_,
                                      .index = bucket.index,
                                      .bytes = bucket.bytes(),
                                      .priority = place.priority,
                                      .start = [&transfer = *transfer] { return transfer.start(); },
                                      .slot = place.slot}));
  }
}

void InPlaceGradients::finish(bool accumulate) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope(MemoryCategory::gradients, unit_);
  const std::vector<ModelTensor>& parameters = gradient_buffers_.tensors();
  const at::ScalarType dtype = parameters_.master_dtype();
  for (std::size_t i = 0; i < tickets_.size(); ++i)
    transfers_[i]->finish(queue_.wait(tickets_[i]), /*untouched=*/{});
  tickets_.clear();
  accumulate = accumulate && !result_.empty();
  if (!accumulate) result_.resize(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor& grad = parameters[i].tensor.mutable_grad();
    label_memory(grad, {MemoryCategory::gradients, unit_});
    if (sharding_ == Sharding::ddp) {
      result_[i] = std::exchange(grad, {}).to(dtype);
      continue;
    }
    const ElementRange own = parameters_.layout().slice(i, rank_).of_parameter;
    const at::Tensor flat = std::exchange(grad, {}).flatten().narrow(0, own.begin, own.size());
    const at::Tensor part = parameters_.shaped(flat, i);
    if (accumulate) {
      result_[i].add_(part);
    } else if (part.scalar_type() != dtype) {
      result_[i] = part.to(dtype);
    } else {
      // ZeRO-1 keeps the whole gradient and uses a view of its part; the other strategies free the parts that
      // the rank does not own.
      result_[i] = sharding_ == Sharding::zero1 ? part.variable_data() : part.clone();
    }
  }
}

Bytes codec_memory(const std::string& codec, Bytes gradients, int ranks) {
  if (codec == "none") return {};
  const std::unique_ptr<collective::Codec> made = collective::make_codec(codec);
  // Bytes are sent and received.
  const std::uint64_t encodings = 2 * made->encoded_bytes(gradients.count / sizeof(float));
  // Residuals of all gradients, and of this rank's sums.
  const std::uint64_t residuals = gradients.count + gradients.count / static_cast<std::uint64_t>(ranks);
  return Bytes{encodings + (made->needs_residual() ? residuals : 0)};
}

CodedBlocks::CodedBlocks(const std::string& codec, const FlatLayout& layout, const Group& shards,
                         const Group& replicas, bool gathers)
    : gathers_(gathers), blocks_(layout.blocks()) {
  const std::shared_ptr<collective::Codec> shared = collective::make_codec(codec);
  const bool scatters = shards.size() > 1;
  feedback_.reserve(*shared, scatters ? layout.flat_elements() : 0,
                    scatters && gathers ? layout.shard_elements() : 0);
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
    for (int rank = 0; rank < layout.ranks(); ++rank)
      block.residuals.push_back(
          residual_part(feedback_.values, layout.shard(rank).begin + part.begin, part.size()));
    block.sum_residual = residual_part(feedback_.sums, part.begin, part.size());
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
  // With one shard rank there is no scatter, so the whole gradient is combined directly in `parts`.
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

CommState CodedBlocks::memory() const {
  CommState memory;
  feedback_.add_to(memory);
  for (std::size_t index = 0; index < blocks_.size(); ++index) {
    if (const auto& copies = blocks_[index].copies)
      copies->feedback().add_to(memory, str("copies/", index, "/"));
  }
  return memory;
}

FlatGradients::FlatGradients(Place place, const FlatParameters& parameters,
                             const GradientBuffers& gradient_buffers, CommunicationQueue& queue,
                             BufferPool& buffers)
    : place_(std::move(place)),
      unit_(memory_unit(place_.unit)),
      parameters_(parameters),
      gradient_buffers_(gradient_buffers),
      queue_(queue),
      buffers_(buffers) {
  if (place_.codec.empty() || gradient_buffers_.dtype() != at::kFloat) return;
  const MemoryScope scope(MemoryCategory::communication, unit_);
  coded_ = std::make_unique<CodedBlocks>(place_.codec, parameters_.layout(), place_.shard_group,
                                         place_.replica_group, place_.sharding == Sharding::ddp);
}

at::Tensor FlatGradients::range(const at::Tensor& flat, int rank, std::size_t block) const {
  const FlatLayout& layout = parameters_.layout();
  const ElementRange part = layout.block(block);
  return flat.narrow(0, layout.shard(rank).begin + part.begin, part.size());
}

void FlatGradients::launch(const GradientWeight& weight, const BlockOrder& order) {
  const FlatLayout& layout = parameters_.layout();
  copy_in(weight);
  incoming_ = buffers_.take(layout.shard_elements(), flat_.options(), label(/*kept=*/false));
  tickets_.clear();
  for (std::size_t block = 0; block < layout.blocks(); ++block) {
    const ElementRange part = layout.block(block);
    const auto [slot, priority] = order.of(block, layout.blocks());
    const at::Tensor sum = incoming_.narrow(0, part.begin, part.size());
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < layout.ranks(); ++rank) parts.push_back(range(flat_, rank, block));
    const Bytes bytes{flat_.nbytes() / static_cast<std::size_t>(layout.shard_elements()) *
                      static_cast<std::size_t>(part.size())};
    std::optional<CommunicationQueue::Ticket> ticket;
    const MemoryScope scope(MemoryCategory::communication, unit_);
    for (BlockStep& step :
         coded_ ? coded_->encode(block, parts, sum, bytes) : plain_steps(parts, sum, bytes)) {
      ticket = queue_.submit({.collective = step.collective,
                              .unit = place_.unit,
                              .index = block,
                              .bytes = step.bytes,
                              .priority = priority,
                              .after = ticket,
                              .start = std::move(step.start),
                              .slot = slot});
    }
    if (ticket) tickets_.push_back(*ticket);
  }
  launched_ = true;
}

std::vector<BlockStep> FlatGradients::plain_steps(const std::vector<at::Tensor>& parts, const at::Tensor& sum,
                                                  Bytes bytes) const {
  std::vector<BlockStep> steps;
  steps.push_back({"reduce_scatter", bytes, [group = place_.shard_group, sum, parts] {
                     return start_reduce_scatter(group, sum, parts);
                   }});
  if (place_.replica_group.member() && place_.replica_group.size() > 1) {
    steps.push_back({"all_reduce", Bytes{sum.nbytes()}, [group = place_.replica_group, sum] {
                       std::vector<at::Tensor> message = {sum};
                       return group.backend()->allreduce(message);
                     }});
  }
  if (place_.sharding == Sharding::ddp) {
    steps.push_back({"all_gather", bytes, [group = place_.shard_group, sum, parts] {
                       return start_all_gather(group, parts, sum);
                     }});
  }
  return steps;
}

CommState FlatGradients::memory() const { return coded_ ? coded_->memory() : CommState(); }

MemoryLabel FlatGradients::label(bool kept) const {
  return {kept ? MemoryCategory::gradients : MemoryCategory::communication, unit_};
}

void FlatGradients::copy_in(const GradientWeight& weight) {
  const at::NoGradGuard no_grad;
  const FlatLayout& layout = parameters_.layout();
  const std::vector<ModelTensor>& parameters = gradient_buffers_.tensors();
  const at::TensorOptions options = parameters.front().tensor.options().requires_grad(false);
  if (!flat_.defined()) {
    const bool kept = place_.sharding == Sharding::ddp || place_.sharding == Sharding::zero1;
    flat_ = buffers_.take(layout.flat_elements(), options, label(kept));
    zero_padding();
  }
  const at::Tensor scale = at::native::wrapped_scalar_tensor(weight.scale);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ElementRange place = layout.place(i);
    at::Tensor to = flat_.narrow(0, place.begin, place.size()).view(parameters[i].tensor.sizes());
    at::Tensor& grad = parameters[i].tensor.mutable_grad();
    if (!grad.defined() || weight.scale == 0) {
      to.zero_();
    } else {
      // Scaling before the sum keeps half-precision sums in range, and has no extra cost while copying.
      at::mul_out(to, grad.requires_grad() ? grad.detach() : grad, scale);
    }
    grad.reset();
  }
}

// Padding is reduced with the gradients, so it must hold finite numbers.
void FlatGradients::zero_padding() {
  const FlatLayout& layout = parameters_.layout();
  std::int64_t end = 0;
  for (std::size_t i = 0; i <= layout.parameters(); ++i) {
    const bool last = i == layout.parameters();
    const std::int64_t begin = last ? layout.flat_elements() : layout.place(i).begin;
    if (begin > end) flat_.narrow(0, end, begin - end).zero_();
    if (!last) end = layout.place(i).end;
  }
}

bool FlatGradients::arrived() {
  return std::all_of(tickets_.begin(), tickets_.end(),
                     [&](CommunicationQueue::Ticket ticket) { return queue_.finished(ticket); });
}

void FlatGradients::finish(bool accumulate) {
  const at::NoGradGuard no_grad;
  for (const CommunicationQueue::Ticket ticket : tickets_) queue_.wait(ticket);
  tickets_.clear();
  launched_ = false;
  if (place_.sharding == Sharding::ddp) {
    // `accumulate` is for sharded gradients; those of ddp accumulate in `.grad` before the reduction.
    buffers_.give_back(std::exchange(incoming_, {}));
    make_result();
    return;
  }
  if (place_.sharding == Sharding::zero1 && flat_.scalar_type() == parameters_.master_dtype()) {
    // The whole buffer is kept, so the sum is stored in its place there.
    const ElementRange own = parameters_.layout().shard(place_.shard_group.rank());
    shard_ = flat_.narrow(0, own.begin, own.size());
    shard_.copy_(incoming_);
    buffers_.give_back(std::exchange(incoming_, {}));
  } else {
    // Frees the parts that other ranks own, unless ZeRO-1 keeps the buffer for the next pass.
    if (place_.sharding != Sharding::zero1) buffers_.give_back(std::exchange(flat_, {}));
    keep_shard(accumulate);
  }
  make_result();
}

void FlatGradients::keep_shard(bool accumulate) {
  at::Tensor sum = std::exchange(incoming_, {});
  if (sum.scalar_type() != parameters_.master_dtype()) {
    const MemoryScope scope(MemoryCategory::gradients, unit_);
    at::Tensor travelled = std::exchange(sum, sum.to(parameters_.master_dtype()));
    buffers_.give_back(travelled);
  }
  if (accumulate && shard_.defined()) {
    shard_.add_(sum);
    buffers_.give_back(sum);
    return;
  }
  label_memory(sum, label(/*kept=*/true));
  shard_ = std::move(sum);
}

void FlatGradients::make_result() {
  const FlatLayout& layout = parameters_.layout();
  const std::vector<ModelTensor>& parameters = parameters_.parameters();
  result_.clear();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (place_.sharding == Sharding::ddp) {
      const ElementRange place = layout.place(i);
      const at::Tensor whole = flat_.narrow(0, place.begin, place.size()).view(parameters[i].tensor.sizes());
      result_.push_back(whole.to(parameters_.master_dtype()).variable_data());
    } else {
      const FlatLayout::Slice slice = layout.slice(i, place_.shard_group.rank());
      const at::Tensor part = shard_.narrow(0, slice.in_shard, slice.of_parameter.size());
      result_.push_back(parameters_.shaped(part, i).variable_data());
    }
  }
}

void FlatGradients::drop() {
  result_.clear();
  shard_.reset();
}

void FlatGradients::recycle() {
  if (flat_.defined() && !launched_) buffers_.give_back(std::exchange(flat_, {}));
}

}  // namespace rondo
