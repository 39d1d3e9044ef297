#include "rondo/backend/coded_shards.h"

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
  // Zeros: what lies between encodings is sent too, and should not be what was in memory before.
  return at::zeros({static_cast<std::int64_t>(bytes)}, at::kByte);
}

std::span<float> floats(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

// `tensor` where the codec can read it: itself, or a copy.
at::Tensor readable(const at::Tensor& tensor, const collective::Codec& codec) {
  if (tensor.scalar_type() != at::kFloat)
    throw UsageError(
        rondo::str("codec '", codec.name(), "' encodes float32 tensors, not ", tensor.scalar_type()));
  return tensor.detach().to(at::kCPU).contiguous();
}

// Calls use(values on the CPU) and takes them back to `tensor`, where that is elsewhere.
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
      // Of a sparse codec the largest values of the whole are wanted.
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
                                const std::vector<at::Tensor>& residuals) {
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
      own_ = values;  // is added as it is, which loses nothing
      continue;
    }
    segments_->encode(floats(values), bytes_of(sent_) + rank * segments_->slot_bytes(),
                      residuals.empty() ? std::span<float>() : floats(residuals[rank]));
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

void CodedAllGather::encode(const at::Tensor& part, const at::Tensor& residual, std::size_t longest) {
  if (!segments_ || longest != longest_) {
    longest_ = longest;
    segments_ = std::make_unique<SegmentedCodec>(codec_, longest);
    sent_ = byte_buffer(segments_->slot_bytes());
    received_ = byte_buffer(segments_->slot_bytes() * ranks_);
  }
  segments_->encode(floats(readable(part, *codec_)), bytes_of(sent_), floats(residual));
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

}  // namespace rondo
