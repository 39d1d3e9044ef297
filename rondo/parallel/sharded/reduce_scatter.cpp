#include "rondo/parallel/sharded/reduce_scatter.h"

#include <ATen/ScalarOps.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/text.h"
#include "rondo/parallel/sharded/shard_collectives.h"

namespace rondo {

Bytes codec_memory(const std::string& codec, Bytes gradients, int ranks) {
  if (codec == "none") return {};
  const std::unique_ptr<collective::Codec> made = collective::make_codec(codec);
  // Sent and received.
  const std::uint64_t encodings = 2 * made->encoded_bytes(gradients.count / sizeof(float));
  // Residuals of all gradients, and of this rank's sums.
  const std::uint64_t residuals = gradients.count + gradients.count / static_cast<std::uint64_t>(ranks);
  return Bytes{encodings + (made->needs_residual() ? residuals : 0)};
}

CodedSegments::CodedSegments(const std::string& codec, const FlatLayout& layout, const Group& shards,
                             const Group& replicas, bool gathers)
    : gathers_(gathers), segments_(layout.segments()) {
  const std::shared_ptr<collective::Codec> shared = collective::make_codec(codec);
  const bool scatters = shards.size() > 1;
  feedback_.reserve(*shared, scatters ? layout.flat_elements() : 0,
                    scatters && gathers ? layout.shard_elements() : 0);
  for (std::size_t index = 0; index < segments_.size(); ++index) {
    Segment& segment = segments_[index];
    const ElementRange part = layout.segment(index);
    if (scatters) segment.scatter = std::make_unique<CodedReduceScatter>(shared, shards.backend());
    if (scatters && gathers) segment.gather = std::make_unique<CodedAllGather>(shared, shards.backend());
    if (replicas.member() && replicas.size() > 1) {
      segment.copies = std::make_unique<CodedAllReduce>(shared, replicas.backend(), ReduceOp::SUM,
                                                        /*error_feedback=*/true);
      segment.copies->reserve(at::empty({part.size()}, at::kFloat));
    }
    for (int rank = 0; rank < layout.ranks(); ++rank)
      segment.residuals.push_back(
          residual_part(feedback_.values, layout.shard(rank).begin + part.begin, part.size()));
    segment.sum_residual = residual_part(feedback_.sums, part.begin, part.size());
  }
}

std::vector<TransferStep> CodedSegments::encode(std::size_t index, const std::vector<at::Tensor>& parts,
                                                const at::Tensor& sum, Bytes bytes) {
  Segment& segment = segments_[index];
  std::vector<TransferStep> steps;
  if (segment.scatter) {
    segment.scatter->encode(parts, segment.residuals);
    steps.push_back({"reduce_scatter", bytes, [&segment, sum] {
                       return BucketFuture(segment.scatter->start()).then([&segment, sum](const at::Tensor&) {
                         segment.scatter->add(sum);
                         return at::Tensor();
                       });
                     }});
  } else if (!gathers_) {
    sum.copy_(parts.front());
  }
  // With one shard rank there is no scatter, so the whole gradient is combined directly in `parts`.
  const at::Tensor shard = segment.scatter || !gathers_ ? sum : parts.front();
  if (segment.copies) {
    const auto end = [&segment](const at::Tensor&) {
      segment.copies->next();
      return at::Tensor();
    };
    const bool has_second = segment.copies->messages() > 1;
    steps.push_back({"all_reduce", Bytes{shard.nbytes()}, [&segment, shard, end, has_second] {
                       BucketFuture first(segment.copies->start(shard));
                       return has_second ? std::move(first) : std::move(first).then(end);
                     }});
    if (has_second) {
      steps.push_back({"all_reduce", Bytes{shard.nbytes()},
                       [&segment, end] { return BucketFuture(segment.copies->next()).then(end); }});
    }
  }
  if (segment.gather) {
    steps.push_back(
        {"all_gather", bytes, [&segment, parts, sum] {
           segment.gather->encode(sum, segment.sum_residual, static_cast<std::size_t>(sum.numel()));
           return BucketFuture(segment.gather->start()).then([&segment, parts](const at::Tensor&) {
             segment.gather->decode(parts);
             return at::Tensor();
           });
         }});
  }
  return steps;
}

CommState CodedSegments::memory() const {
  CommState memory;
  feedback_.add_to(memory);
  for (std::size_t index = 0; index < segments_.size(); ++index) {
    if (const auto& copies = segments_[index].copies)
      copies->feedback().add_to(memory, str("copies/", index, "/"));
  }
  return memory;
}

ReduceScatter::ReduceScatter(Bucket bucket, const WeightSource& weight, const FlatLayout& layout,
                             BufferPool& buffers, Options options)
    : Transfer(std::move(bucket), weight), layout_(layout), buffers_(buffers), options_(std::move(options)) {
  if (options_.codec.empty() || this->bucket().parameters.front().tensor.scalar_type() != at::kFloat) return;
  const MemoryScope scope(MemoryCategory::communication, options_.unit);
  coded_ = std::make_unique<CodedSegments>(options_.codec, layout_, options_.shards, options_.replicas,
                                           options_.gathers);
}

void ReduceScatter::begin() {
  const at::NoGradGuard no_grad;
  factor_ = at::native::wrapped_scalar_tensor(weight().scale);
  if (flat_.defined()) return;
  const bool kept = options_.gathers || options_.keeps_buffer;
  const at::TensorOptions options = bucket().parameters.front().tensor.options().requires_grad(false);
  flat_ = buffers_.take(layout_.flat_elements(), options,
                        {kept ? MemoryCategory::gradients : MemoryCategory::communication, options_.unit});
  zero_padding();
}

void ReduceScatter::take(std::size_t member) {
  const at::NoGradGuard no_grad;
  const at::Tensor& parameter = bucket().parameters[member].tensor;
  const ElementRange place = layout_.place(bucket().numbers[member]);
  at::Tensor to = flat_.narrow(0, place.begin, place.size()).view(parameter.sizes());
  at::Tensor& grad = parameter.mutable_grad();
  if (!grad.defined() || weight().scale == 0) {
    to.zero_();
  } else {
    // Scaling before the sum keeps half-precision sums in range, and has no extra cost while copying.
    at::mul_out(to, grad.requires_grad() ? grad.detach() : grad, factor_);
  }
  grad.reset();
}

// Padding is reduced with the gradients, so it must hold finite numbers.
void ReduceScatter::zero_padding() {
  std::int64_t end = 0;
  for (std::size_t i = 0; i <= layout_.parameters(); ++i) {
    const bool last = i == layout_.parameters();
    const std::int64_t begin = last ? layout_.flat_elements() : layout_.place(i).begin;
    if (begin > end) flat_.narrow(0, end, begin - end).zero_();
    if (!last) end = layout_.place(i).end;
  }
}

std::vector<TransferStep> ReduceScatter::steps(std::size_t segment) {
  const MemoryScope scope(MemoryCategory::communication, options_.unit);
  if (!sums_.defined()) {
    sums_ = buffers_.take(layout_.shard_elements(), flat_.options(),
                          {MemoryCategory::communication, options_.unit});
  }
  const ElementRange part = layout_.segment(segment);
  const at::Tensor sum = sums_.narrow(0, part.begin, part.size());
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < layout_.ranks(); ++rank)
    parts.push_back(flat_.narrow(0, layout_.shard(rank).begin + part.begin, part.size()));
  const Bytes bytes{flat_.nbytes() / static_cast<std::size_t>(layout_.shard_elements()) *
                    static_cast<std::size_t>(part.size())};
  return coded_ ? coded_->encode(segment, parts, sum, bytes) : plain_steps(parts, sum, bytes);
}

std::vector<TransferStep> ReduceScatter::plain_steps(const std::vector<at::Tensor>& parts,
                                                     const at::Tensor& sum, Bytes bytes) const {
  std::vector<TransferStep> steps;
  steps.push_back({"reduce_scatter", bytes, [group = options_.shards, sum, parts] {
                     return start_reduce_scatter(group, sum, parts);
                   }});
  if (options_.replicas.member() && options_.replicas.size() > 1) {
    steps.push_back({"all_reduce", Bytes{sum.nbytes()}, [group = options_.replicas, sum] {
                       std::vector<at::Tensor> message = {sum};
                       return group.backend()->allreduce(message);
                     }});
  }
  if (options_.gathers) {
    steps.push_back({"all_gather", bytes,
                     [group = options_.shards, sum, parts] { return start_all_gather(group, parts, sum); }});
  }
  return steps;
}

void ReduceScatter::store(const at::Tensor& /*result*/, const std::vector<bool>& /*untouched*/) {
  const at::NoGradGuard no_grad;
  at::Tensor shard = sums_;
  if (options_.gathers) {
    buffers_.give_back(take_sums());
  } else if (options_.keeps_buffer) {
    const ElementRange own = layout_.shard(options_.shards.rank());
    shard = flat_.narrow(0, own.begin, own.size());
    shard.copy_(sums_);
    buffers_.give_back(take_sums());
  } else {
    // Frees the parts that other ranks own.
    buffers_.give_back(std::exchange(flat_, {}));
  }
  const std::vector<ModelTensor>& parameters = bucket().parameters;
  for (std::size_t member = 0; member < parameters.size(); ++member) {
    const std::size_t index = bucket().numbers[member];
    const at::Tensor& parameter = parameters[member].tensor;
    if (options_.gathers) {
      const ElementRange place = layout_.place(index);
      parameter.mutable_grad() = flat_.narrow(0, place.begin, place.size()).view(parameter.sizes());
    } else {
      const FlatLayout::Slice slice = layout_.slice(index, options_.shards.rank());
      parameter.mutable_grad() = shard.narrow(0, slice.in_shard, slice.of_parameter.size());
    }
  }
}

void ReduceScatter::recycle() {
  if (flat_.defined() && !launched()) buffers_.give_back(std::exchange(flat_, {}));
}

void ReduceScatter::discard() noexcept {
  flat_.reset();
  sums_.reset();
}

}  // namespace rondo
