#include "rondo/backend/coded_collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr std::size_t kSlotMultiple = 64;
constexpr std::size_t kSegment = 16384;

std::size_t in_slots(std::size_t bytes) {
  return (bytes + kSlotMultiple - 1) / kSlotMultiple * kSlotMultiple;
}

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

at::Tensor byte_buffer(std::size_t bytes) {
  // Zeroed: the gaps between encodings are sent too and must not expose earlier contents of the memory.
  return at::zeros({static_cast<std::int64_t>(bytes)}, at::kByte);
}

std::span<float> floats(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

// Returns `tensor` as contiguous float32 on the CPU, copied if necessary. Throws UsageError for another
// dtype.
at::Tensor readable(const at::Tensor& tensor, const collective::Codec& codec) {
  if (tensor.scalar_type() != at::kFloat)
    throw UsageError(
        rondo::str("codec '", codec.name(), "' encodes float32 tensors, not ", tensor.scalar_type()));
  return tensor.detach().to(at::kCPU).contiguous();
}

// Calls use(values on the CPU), and copies the values back to `tensor` if it is not a contiguous CPU tensor.
template <class Use>
void fill(const at::Tensor& tensor, const Use& use) {
  if (tensor.is_cpu() && tensor.is_contiguous()) return use(floats(tensor));
  const at::Tensor copy = at::empty(tensor.sizes(), at::kFloat);
  use(floats(copy));
  tensor.copy_(copy);
}

void multiply(std::span<float> values, float factor) {
  if (factor == 1) return;
  for (float& value : values) value *= factor;
}

}  // namespace

SegmentedCodec::SegmentedCodec(const std::shared_ptr<collective::Codec>& codec, std::size_t longest)
    : codec_(codec),
      // A sparse codec selects the largest values of the whole tensor.
      segment_(std::max<std::size_t>(1, codec->is_sparse() ? longest : std::min(longest, kSegment))),
      segment_bytes_(in_slots(codec->encoded_bytes(segment_))),
      slot_(in_slots(encoded_bytes(longest))) {}

std::size_t SegmentedCodec::encoded_bytes(std::size_t values) const {
  if (values == 0) return 0;
  const std::size_t full = (values - 1) / segment_;
  return full * segment_bytes_ + codec_->encoded_bytes(values - full * segment_);
}

void SegmentedCodec::encode(std::span<const float> values, std::byte* encoded,
                            std::span<float> residual) const {
  for_each_segment(values.size(), [&](std::size_t begin, std::size_t count, std::size_t offset) {
    codec_->encode(values.subspan(begin, count), {encoded + offset, codec_->encoded_bytes(count)},
                   residual.empty() ? residual : residual.subspan(begin, count));
  });
}

void SegmentedCodec::decode(const std::byte* encoded, std::span<float> values) const {
  for_each_segment(values.size(), [&](std::size_t begin, std::size_t count, std::size_t offset) {
    add_segment(encoded + offset, values.subspan(begin, count), /*first=*/true);
  });
}

void SegmentedCodec::add_segment(const std::byte* encoded, std::span<float> values, bool first) const {
  const std::span<const std::byte> bytes(encoded, codec_->encoded_bytes(values.size()));
  first ? codec_->decode(bytes, values) : codec_->decode_add(bytes, values);
}

CodedReduceScatter::CodedReduceScatter(std::shared_ptr<collective::Codec> codec,
                                       c10::intrusive_ptr<c10d::Backend> backend)
    : codec_(std::move(codec)),
      backend_(std::move(backend)),
      rank_(static_cast<std::size_t>(backend_->getRank())),
      ranks_(static_cast<std::size_t>(backend_->getSize())) {}

void CodedReduceScatter::encode(const std::vector<at::Tensor>& parts,
                                const std::vector<std::span<float>>& residuals) {
  const auto longest = static_cast<std::size_t>(parts.front().numel());
  if (!segments_ || longest != longest_) {
    longest_ = longest;
    segments_ = std::make_unique<SegmentedCodec>(codec_, longest);
    sent_ = byte_buffer(segments_->slot_bytes() * ranks_);
    received_ = byte_buffer(segments_->slot_bytes() * ranks_);
    sum_ = at::empty({static_cast<std::int64_t>(segments_->segment())}, at::kFloat);
  }
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    const at::Tensor values = readable(parts[rank], *codec_);
    if (rank == rank_) {
      own_ = values;  // added unencoded, without loss
      continue;
    }
    segments_->encode(floats(values), bytes_of(sent_) + rank * segments_->slot_bytes(),
                      residuals.empty() ? std::span<float>() : residuals[rank]);
  }
}

CodedReduceScatter::Work CodedReduceScatter::start() {
  std::vector<std::int64_t> even;
  return backend_->alltoall_base(received_, sent_, even, even);
}

void CodedReduceScatter::add(const at::Tensor& sum, float scale) {
  const std::span<const float> own = floats(own_);
  fill(sum, [&](std::span<float> result) {
    segments_->for_each_segment(own.size(), [&](std::size_t begin, std::size_t count, std::size_t offset) {
      const std::span<float> part(sum_.data_ptr<float>(), count);
      std::fill(part.begin(), part.end(), 0.0F);
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        if (rank == rank_) {
          for (std::size_t i = 0; i < count; ++i) part[i] += own[begin + i];
        } else {
          segments_->add_segment(bytes_of(received_) + rank * segments_->slot_bytes() + offset, part,
                                 /*first=*/false);
        }
      }
      multiply(part, scale);
      std::copy(part.begin(), part.end(), result.begin() + static_cast<std::ptrdiff_t>(begin));
    });
  });
  own_.reset();
}

CodedAllGather::CodedAllGather(std::shared_ptr<collective::Codec> codec,
                               c10::intrusive_ptr<c10d::Backend> backend)
    : codec_(std::move(codec)),
      backend_(std::move(backend)),
      ranks_(static_cast<std::size_t>(backend_->getSize())) {}

void CodedAllGather::encode(const at::Tensor& part, std::span<float> residual, std::size_t longest) {
  if (!segments_ || longest != longest_) {
    longest_ = longest;
    segments_ = std::make_unique<SegmentedCodec>(codec_, longest);
    sent_ = byte_buffer(segments_->slot_bytes());
    received_ = byte_buffer(segments_->slot_bytes() * ranks_);
  }
  segments_->encode(floats(readable(part, *codec_)), bytes_of(sent_), residual);
}

CodedAllGather::Work CodedAllGather::start() { return backend_->_allgather_base(received_, sent_); }

const std::byte* CodedAllGather::received(std::size_t rank) const {
  return bytes_of(received_) + rank * segments_->slot_bytes();
}

void CodedAllGather::decode(const std::vector<at::Tensor>& parts) {
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    fill(parts[rank], [&](std::span<float> values) { segments_->decode(received(rank), values); });
}

void CodedAllGather::add(const at::Tensor& sum, float scale) {
  fill(sum, [&](std::span<float> values) {
    segments_->for_each_segment(values.size(), [&](std::size_t begin, std::size_t count, std::size_t offset) {
      const std::span<float> segment = values.subspan(begin, count);
      for (std::size_t rank = 0; rank < ranks_; ++rank)
        segments_->add_segment(received(rank) + offset, segment, /*first=*/rank == 0);
      multiply(segment, scale);
    });
  });
}

namespace {

// Alignment of parts, in values: no block of a codec is split.
constexpr std::int64_t kPartMultiple = 512;
// Smallest tensor that uses the exchange, in values. For smaller ones the second message costs more than it
// saves.
constexpr std::int64_t kSmallestExchange = 4096;

float scale_of(ReduceOp op, int size) {
  if (op == ReduceOp::SUM) return 1;
  if (op == ReduceOp::AVG) return 1 / static_cast<float>(size);
  throw UsageError("all_reduce with a codec supports SUM and AVG only");
}

}  // namespace

CodedAllReduce::CodedAllReduce(const std::shared_ptr<collective::Codec>& codec,
                               const c10::intrusive_ptr<c10d::Backend>& backend, ReduceOp op,
                               bool error_feedback, bool always_gathers)
    : codec_(codec),
      rank_(static_cast<std::size_t>(backend->getRank())),
      size_(static_cast<std::size_t>(backend->getSize())),
      scale_(scale_of(op, backend->getSize())),
      always_gathers_(always_gathers),
      error_feedback_(error_feedback),
      sums_(codec, backend),
      encodings_(codec, backend) {}

void CodedAllReduce::reserve(const at::Tensor& values) {
  if (values.scalar_type() != at::kFloat) {
    throw UsageError(
        rondo::str("codec '", codec_->name(), "' encodes float32 tensors, not ", values.scalar_type()));
  }
  if (values.numel() == count_) return;
  count_ = values.numel();
  const auto ranks = static_cast<std::int64_t>(size_);
  gathers_ = always_gathers_ || codec_->is_sparse() || ranks == 2 || count_ < kSmallestExchange;
  const std::int64_t even = (count_ + ranks - 1) / ranks;
  part_count_ = gathers_ ? count_ : (even + kPartMultiple - 1) / kPartMultiple * kPartMultiple;
  if (error_feedback_) feedback_.reserve(*codec_, count_, gathers_ ? 0 : part_count_);
}

std::vector<at::Tensor> CodedAllReduce::parts_of(const at::Tensor& values) const {
  std::vector<at::Tensor> parts;
  if (!values.defined()) return parts;
  for (std::int64_t rank = 0; rank < static_cast<std::int64_t>(size_); ++rank) {
    const std::int64_t begin = std::min(count_, rank * part_count_);
    parts.push_back(values.narrow(0, begin, std::min(part_count_, count_ - begin)));
  }
  return parts;
}

CodedAllReduce::Work CodedAllReduce::start(const at::Tensor& values) {
  reserve(values);
  if (size_ == 1 || count_ == 0) return nullptr;
  copied_ = dense(values.detach(), "all_reduce through a codec", true);
  values_ = copied_.data.as_strided({count_}, {1});  // in memory order
  if (gathers_) {
    encodings_.encode(values_, floats(feedback_.values), static_cast<std::size_t>(count_));
    stage_ = Stage::gathering;
    return encodings_.start();
  }
  std::vector<std::span<float>> residuals;
  for (const at::Tensor& part : parts_of(feedback_.values)) residuals.push_back(floats(part));
  sums_.encode(parts_of(values_), residuals);
  stage_ = Stage::exchanging;
  return sums_.start();
}

CodedAllReduce::Work CodedAllReduce::next() {
  switch (std::exchange(stage_, Stage::idle)) {
    case Stage::exchanging: {
      const at::Tensor own = parts_of(values_)[rank_];
      sums_.add(own, scale_);
      encodings_.encode(own, residual_part(feedback_.sums, 0, own.numel()),
                        static_cast<std::size_t>(part_count_));
      stage_ = Stage::gathering_sums;
      return encodings_.start();
    }
    case Stage::gathering:
      encodings_.add(values_, scale_);
      break;
    case Stage::gathering_sums:
      encodings_.decode(parts_of(values_));
      break;
    case Stage::idle:
      break;
  }
  if (values_.defined()) copied_.copy_back();
  copied_ = {};
  values_.reset();
  return nullptr;
}

void CodedAllReduce::run(const at::Tensor& values) {
  for (Work work = start(values); work; work = next()) work->wait();
}

void all_reduce(at::Tensor& tensor, const Group& group, std::string_view codec, ReduceOp op) {
  CodedAllReduce reduction(collective::make_codec(codec), group.backend(), op, /*error_feedback=*/false);
  reduction.run(tensor);
}

}  // namespace rondo
