#include "rondo/backend/coded_all_reduce.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Parts begin at multiples of it: no block of a codec is cut.
constexpr std::int64_t kPartMultiple = 512;
// Below it the second message costs more than the bytes that it saves.
constexpr std::int64_t kSmallestExchange = 4096;

float scale_of(ReduceOp op, int size) {
  if (op == ReduceOp::SUM) return 1;
  if (op == ReduceOp::AVG) return 1 / static_cast<float>(size);
  throw UsageError("an all-reduce through a codec computes SUM or AVG");
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
      error_feedback_(error_feedback && codec->needs_residual()),
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
  if (!error_feedback_) return;
  residual_ = at::zeros({count_}, at::kFloat);
  if (!gathers_) sum_residual_ = at::zeros({part_count_}, at::kFloat);
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
  values_ = copied_.data.as_strided({count_}, {1});  // in the order in which they lie in memory
  if (gathers_) {
    encodings_.encode(values_, residual_, static_cast<std::size_t>(count_));
    stage_ = Stage::gathering;
    return encodings_.start();
  }
  sums_.encode(parts_of(values_), parts_of(residual_));
  stage_ = Stage::exchanging;
  return sums_.start();
}

CodedAllReduce::Work CodedAllReduce::next() {
  switch (std::exchange(stage_, Stage::idle)) {
    case Stage::exchanging: {
      const at::Tensor own = parts_of(values_)[rank_];
      sums_.add(own, scale_);
      encodings_.encode(own,
                        sum_residual_.defined() ? sum_residual_.narrow(0, 0, own.numel()) : sum_residual_,
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
