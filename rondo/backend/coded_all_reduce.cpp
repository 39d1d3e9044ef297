#include "rondo/backend/coded_all_reduce.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Parts begin at multiples of it: no block of a codec is cut, and slots stay aligned.
constexpr std::size_t kPartMultiple = 512;
constexpr std::size_t kSlotMultiple = 64;
constexpr std::size_t kSegment = 16384;
// Below it the second message costs more than the bytes that it saves.
constexpr std::size_t kSmallestExchange = 4096;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

at::Tensor byte_buffer(std::size_t bytes) {
  // Zeros: what lies between encodings is sent too, and should not be what was in memory before.
  return at::zeros({static_cast<std::int64_t>(bytes)}, at::kByte);
}

void multiply(std::span<float> values, float factor) {
  if (factor == 1) return;
  for (float& value : values) value *= factor;
}

float scale_of(ReduceOp op, int size) {
  if (op == ReduceOp::SUM) return 1;
  if (op == ReduceOp::AVG) return 1 / static_cast<float>(size);
  throw UsageError("an all-reduce through a codec computes SUM or AVG");
}

}  // namespace

CodedAllReduce::CodedAllReduce(std::unique_ptr<collective::Codec> codec,
                               c10::intrusive_ptr<c10d::Backend> backend, ReduceOp op, bool error_feedback)
    : codec_(std::move(codec)),
      backend_(std::move(backend)),
      rank_(static_cast<std::size_t>(backend_->getRank())),
      size_(static_cast<std::size_t>(backend_->getSize())),
      scale_(scale_of(op, backend_->getSize())),
      error_feedback_(error_feedback && codec_->needs_residual()) {}

void CodedAllReduce::reserve(const at::Tensor& values) {
  if (values.scalar_type() != at::kFloat) {
    throw UsageError(
        rondo::str("codec '", codec_->name(), "' encodes float32 tensors, not ", values.scalar_type()));
  }
  const auto count = static_cast<std::size_t>(values.numel());
  if (count == count_) return;
  count_ = count;
  gathers_ = codec_->is_sparse() || size_ == 2 || count < kSmallestExchange;
  part_count_ = gathers_ ? count : round_up((count + size_ - 1) / size_, kPartMultiple);
  // Of a sparse codec the largest values of the whole are wanted.
  segment_ = codec_->is_sparse() ? part_count_ : std::min(part_count_, kSegment);
  slot_ = round_up(encoded_bytes(part_count_), kSlotMultiple);
  sent_ = byte_buffer(gathers_ ? slot_ : slot_ * size_);
  received_ = byte_buffer(slot_ * size_);
  if (!gathers_) sum_ = at::empty({static_cast<std::int64_t>(segment_)}, at::kFloat);
  if (!error_feedback_) return;
  residual_ = at::zeros({values.numel()}, at::kFloat);
  if (!gathers_) sum_residual_ = at::zeros({static_cast<std::int64_t>(part_count_)}, at::kFloat);
}

CodedAllReduce::Part CodedAllReduce::part(std::size_t rank) const {
  const std::size_t begin = std::min(count_, rank * part_count_);
  return {begin, std::min(part_count_, count_ - begin)};
}

std::span<float> CodedAllReduce::values_of(const Part& part) const {
  return {values_.data_ptr<float>() + part.begin, part.count};
}

std::size_t CodedAllReduce::encoded_bytes(std::size_t values) const {
  if (values == 0) return 0;
  const std::size_t full = (values - 1) / segment_;
  return full * round_up(codec_->encoded_bytes(segment_), kSlotMultiple) +
         codec_->encoded_bytes(values - full * segment_);
}

template <class Visit>
void CodedAllReduce::for_each_segment(const Part& part, const Visit& visit) const {
  const std::size_t bytes = round_up(codec_->encoded_bytes(segment_), kSlotMultiple);
  std::size_t offset = 0;
  for (std::size_t begin = 0; begin < part.count; begin += segment_, offset += bytes) {
    visit(Part{part.begin + begin, std::min(segment_, part.count - begin)}, offset);
  }
}

std::span<const std::byte> CodedAllReduce::received(std::size_t rank, std::size_t begin,
                                                    std::size_t values) const {
  return {bytes_of(received_) + rank * slot_ + begin, codec_->encoded_bytes(values)};
}

void CodedAllReduce::encode_part(const Part& part, std::size_t slot) {
  for_each_segment(part, [&](const Part& segment, std::size_t offset) {
    const std::span<float> residual =
        error_feedback_ ? std::span(residual_.data_ptr<float>() + segment.begin, segment.count)
                        : std::span<float>();
    codec_->encode(values_of(segment),
                   {bytes_of(sent_) + slot * slot_ + offset, codec_->encoded_bytes(segment.count)}, residual);
  });
}

CodedAllReduce::Work CodedAllReduce::start(const at::Tensor& values) {
  reserve(values);
  if (size_ == 1 || count_ == 0) return nullptr;
  copied_ = dense(values.detach(), "all_reduce through a codec", true);
  values_ = copied_.data;
  if (gathers_) {
    encode_part({0, count_}, 0);
    stage_ = Stage::gathering;
    return backend_->_allgather_base(received_, sent_);
  }
  for (std::size_t rank = 0; rank < size_; ++rank) {
    // What stays here is added as it is, which loses nothing.
    if (rank != rank_) encode_part(part(rank), rank);
  }
  stage_ = Stage::exchanging;
  std::vector<std::int64_t> even;
  return backend_->alltoall_base(received_, sent_, even, even);
}

CodedAllReduce::Work CodedAllReduce::next() {
  switch (std::exchange(stage_, Stage::idle)) {
    case Stage::exchanging:
      return exchange_sums();
    case Stage::gathering:
      add_encodings();
      break;
    case Stage::gathering_sums:
      take_sums();
      break;
    case Stage::idle:
      break;
  }
  if (values_.defined()) copied_.copy_back();
  copied_ = {};
  values_.reset();
  return nullptr;
}

void CodedAllReduce::add_encodings() {
  for_each_segment({0, count_}, [&](const Part& segment, std::size_t offset) {
    const std::span<float> values = values_of(segment);
    codec_->decode(received(0, offset, segment.count), values);
    for (std::size_t rank = 1; rank < size_; ++rank) {
      codec_->decode_add(received(rank, offset, segment.count), values);
    }
    multiply(values, scale_);
  });
}

CodedAllReduce::Work CodedAllReduce::exchange_sums() {
  const Part mine = part(rank_);
  for_each_segment(mine, [&](const Part& segment, std::size_t offset) {
    const std::span<const float> own = values_of(segment);
    const std::size_t begin = segment.begin - mine.begin;
    const std::span<float> sum(sum_.data_ptr<float>(), segment.count);
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (std::size_t rank = 0; rank < size_; ++rank) {
      if (rank == rank_) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
      } else {
        codec_->decode_add(received(rank, offset, segment.count), sum);
      }
    }
    multiply(sum, scale_);
    const std::span<float> residual = error_feedback_
                                          ? std::span(sum_residual_.data_ptr<float>() + begin, segment.count)
                                          : std::span<float>();
    codec_->encode(sum, {bytes_of(sent_) + offset, codec_->encoded_bytes(segment.count)}, residual);
  });
  stage_ = Stage::gathering_sums;
  at::Tensor encoded = sent_.narrow(0, 0, static_cast<std::int64_t>(slot_));
  return backend_->_allgather_base(received_, encoded);
}

void CodedAllReduce::take_sums() {
  for (std::size_t rank = 0; rank < size_; ++rank) {
    for_each_segment(part(rank), [&](const Part& segment, std::size_t offset) {
      codec_->decode(received(rank, offset, segment.count), values_of(segment));
    });
  }
}

void CodedAllReduce::run(const at::Tensor& values) {
  for (Work work = start(values); work; work = next()) work->wait();
}

void all_reduce(at::Tensor& tensor, const Group& group, std::string_view codec, ReduceOp op) {
  CodedAllReduce reduction(collective::make_codec(codec), group.backend(), op, /*error_feedback=*/false);
  reduction.run(tensor);
}

}  // namespace rondo
