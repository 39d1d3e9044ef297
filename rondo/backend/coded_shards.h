#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "rondo/collective/codec/codec.h"

namespace rondo {

// reduce_scatter and all_gather of float32 values in which a codec's encodings travel, over any engine of
// c10d. What encodings leave out (error feedback) is the caller's to keep, in tensors as long as the values,
// on the CPU; undefined ones keep nothing. Values may be on any device, where they are copied to the CPU and
// back. One thread at a time; the same calls in the same order on all ranks, with parts of the same lengths,
// of which the first is the longest. The objects keep their buffers from one call to the next.

// Encodes in segments that stay in the second-level cache from one step of the work to the next.
class SegmentedCodec {
 public:
  // Encodes at most `longest` values at a time.
  SegmentedCodec(const std::shared_ptr<collective::Codec>& codec, std::size_t longest);

  // Length of the encoding of so many values, in bytes, and the distance between two encodings of `longest`.
  std::size_t encoded_bytes(std::size_t values) const;
  std::size_t slot_bytes() const { return slot_; }

  // `residual` is empty, or as long as `values`.
  void encode(std::span<const float> values, std::byte* encoded, std::span<float> residual) const;
  void decode(const std::byte* encoded, std::span<float> values) const;
  // Calls visit(first value, number of values, where their encoding begins) for each segment of `values`.
  template <class Visit>
  void for_each_segment(std::size_t values, const Visit& visit) const {
    for (std::size_t begin = 0, offset = 0; begin < values; begin += segment_, offset += segment_bytes_)
      visit(begin, std::min(segment_, values - begin), offset);
  }
  // values += the segment that is encoded at `encoded`; or = with `first`.
  void add_segment(const std::byte* encoded, std::span<float> values, bool first) const;
  std::size_t segment() const { return segment_; }

 private:
  std::shared_ptr<collective::Codec> codec_;
  std::size_t segment_;        // values encoded at a time
  std::size_t segment_bytes_;  // between the encodings of two segments
  std::size_t slot_;
};

// Every rank ends with the sum of its part over all ranks: its own values unencoded, added in rank order in
// float32. Per rank (p-1)/p times the encoded bytes travel.
class CodedReduceScatter {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  CodedReduceScatter(std::shared_ptr<collective::Codec> codec, c10::intrusive_ptr<c10d::Backend> backend);

  // Encodes parts[r], this rank's share of rank r's part, with residuals[r]; `residuals` may be empty.
  void encode(const std::vector<at::Tensor>& parts, const std::vector<at::Tensor>& residuals);
  // Starts the message, without waiting.
  Work start();
  // The message is complete: `sum` becomes the sum times `scale`. It may be this rank's own part.
  void add(const at::Tensor& sum, float scale = 1);

 private:
  const std::shared_ptr<collective::Codec> codec_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
  const std::size_t rank_;
  const std::size_t ranks_;
  std::unique_ptr<SegmentedCodec> segments_;  // made for longest_
  std::size_t longest_ = 0;
  at::Tensor sent_;      // uint8, a slot a rank
  at::Tensor received_;  // likewise
  at::Tensor own_;       // this rank's share of its own part, on the CPU
  at::Tensor sum_;       // of one segment
};

// Every rank ends with what the encodings of all ranks' parts stand for, its own too: the same bits
// everywhere. Per rank (p-1) times the encoded bytes of a part travel.
class CodedAllGather {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  CodedAllGather(std::shared_ptr<collective::Codec> codec, c10::intrusive_ptr<c10d::Backend> backend);

  // Encodes this rank's part; `longest` is the number of values of the longest one.
  void encode(const at::Tensor& part, const at::Tensor& residual, std::size_t longest);
  // Starts the message, without waiting.
  Work start();
  // The message is complete: parts[r] becomes what rank r has encoded.
  void decode(const std::vector<at::Tensor>& parts);
  // Instead: `sum` becomes what the encodings of all ranks, each of as many values, stand for together, added
  // in rank order and multiplied by `scale`.
  void add(const at::Tensor& sum, float scale);

 private:
  const std::byte* received(std::size_t rank) const;

  const std::shared_ptr<collective::Codec> codec_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
  const std::size_t ranks_;
  std::unique_ptr<SegmentedCodec> segments_;
  std::size_t longest_ = 0;
  at::Tensor sent_;      // uint8, one slot
  at::Tensor received_;  // uint8, a slot a rank
};

}  // namespace rondo
