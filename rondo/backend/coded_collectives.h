#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "rondo/backend/collectives.h"
#include "rondo/backend/engine/codec_state.h"
#include "rondo/backend/requests/dense_tensor.h"
#include "rondo/collective/codec/codec.h"

namespace rondo {

// reduce_scatter and all_gather of float32 values that send a codec's encodings, over any c10d engine. The
// caller keeps the residuals (ErrorFeedback): as long as the values, or empty to disable error feedback.
// Values may be on any device; they are copied to the CPU and back. One thread at a time; all ranks make the
// same calls in the same order, with parts of the same lengths, of which the first is the longest. The
// objects keep their buffers between calls.

// An encoder of long tensors in segments that stay in the second-level cache throughout a step.
class SegmentedCodec {
 public:
  // Prepares to encode at most `longest` values at a time.
  SegmentedCodec(const std::shared_ptr<collective::Codec>& codec, std::size_t longest);

  // Returns the length of the encoding of `values` values, in bytes.
  std::size_t encoded_bytes(std::size_t values) const;
  // Distance between two encodings of `longest` values, in bytes.
  std::size_t slot_bytes() const { return slot_; }

  // Encodes `values`. `residual` is empty or as long as `values`.
  void encode(std::span<const float> values, std::byte* encoded, std::span<float> residual) const;
  // Decodes into `values`.
  void decode(const std::byte* encoded, std::span<float> values) const;
  // Calls visit(first value, number of values, byte offset of their encoding) for each segment of `values`.
  template <class Visit>
  void for_each_segment(std::size_t values, const Visit& visit) const {
    for (std::size_t begin = 0, offset = 0; begin < values; begin += segment_, offset += segment_bytes_)
      visit(begin, std::min(segment_, values - begin), offset);
  }
  // Adds the decoded segment at `encoded` to `values`; with `first`, overwrites `values`.
  void add_segment(const std::byte* encoded, std::span<float> values, bool first) const;
  std::size_t segment() const { return segment_; }  // values per segment

 private:
  std::shared_ptr<collective::Codec> codec_;
  std::size_t segment_;        // values per segment
  std::size_t segment_bytes_;  // bytes between the encodings of two segments
  std::size_t slot_;
};

// A reduce-scatter of encoded values: every rank ends with the sum of its part over all ranks, added in rank
// order in float32. The rank's own values are not encoded. Each rank sends (p-1)/p times the encoded bytes.
class CodedReduceScatter {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;  // an operation of the engine

  // Communicates over `backend`.
  CodedReduceScatter(std::shared_ptr<collective::Codec> codec, c10::intrusive_ptr<c10d::Backend> backend);

  // Encodes parts[r], this rank's contribution to rank r's part, with residuals[r]. `residuals` may be empty.
  void encode(const std::vector<at::Tensor>& parts, const std::vector<std::span<float>>& residuals);
  // Starts the message without waiting.
  Work start();
  // Writes the sum times `scale` to `sum`, after the message is complete. `sum` may be this rank's own part.
  void add(const at::Tensor& sum, float scale = 1);

 private:
  const std::shared_ptr<collective::Codec> codec_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
  const std::size_t rank_;
  const std::size_t ranks_;
  std::unique_ptr<SegmentedCodec> segments_;  // for parts of up to longest_ values
  std::size_t longest_ = 0;
  at::Tensor sent_;      // uint8, one slot per rank
  at::Tensor received_;  // uint8, one slot per rank
  at::Tensor own_;       // this rank's contribution to its own part, on the CPU
  at::Tensor sum_;       // buffer for one segment
};

// An all-gather of encodings: every rank decodes the parts of all ranks, its own included, so that the bits
// are the same everywhere. Each rank sends (p-1) times the encoded bytes of a part.
class CodedAllGather {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;  // an operation of the engine

  // Communicates over `backend`.
  CodedAllGather(std::shared_ptr<collective::Codec> codec, c10::intrusive_ptr<c10d::Backend> backend);

  // Encodes this rank's part. `longest` is the number of values of the longest part.
  void encode(const at::Tensor& part, std::span<float> residual, std::size_t longest);
  // Starts the message without waiting.
  Work start();
  // Decodes rank r's part into parts[r], after the message is complete.
  void decode(const std::vector<at::Tensor>& parts);
  // Alternative to decode(): writes the sum of all ranks' decoded parts, which have equal lengths, to `sum`,
  // added in rank order and multiplied by `scale`.
  void add(const at::Tensor& sum, float scale);

 private:
  const std::byte* received(std::size_t rank) const;

  const std::shared_ptr<collective::Codec> codec_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
  const std::size_t ranks_;
  std::unique_ptr<SegmentedCodec> segments_;
  std::size_t longest_ = 0;
  at::Tensor sent_;      // uint8, one slot
  at::Tensor received_;  // uint8, one slot per rank
};

// An all-reduce for a stream of float32 tensors that sends a codec's encodings, over any c10d engine. Every
// rank ends with the same bits. With error feedback the encoding error of one tensor of the stream is added
// to the next tensor.
//
// There are two algorithms, chosen by values that all ranks know:
// - exchange: rank r receives the encodings of part r from all ranks, adds the decoded values in rank order
//   in float32 (its own values unencoded) and encodes the sum; then all ranks receive all sums. Each rank
//   sends 2 (p-1)/p times the encoded bytes. Each of the two encodings has its own residual (Tang et al.,
//   "DoubleSqueeze", ICML 2019).
// - gather: all ranks receive all encodings and add the decoded values in rank order. Each rank sends (p-1)
//   times the encoded bytes: no more than the exchange for two ranks, and the only choice for sparse codecs,
//   whose sums are not sparse.
//
// One thread at a time; all ranks make the same calls in the same order.
class CodedAllReduce {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;  // an operation of the engine

  // `op` is SUM or AVG. Without error feedback each tensor is independent of earlier ones. `always_gathers`
  // selects gather for every length, for engines without all_to_all.
  CodedAllReduce(const std::shared_ptr<collective::Codec>& codec,
                 const c10::intrusive_ptr<c10d::Backend>& backend, ReduceOp op, bool error_feedback,
                 bool always_gathers = false);

  // Allocates the error feedback for tensors of this length. start() calls it if necessary.
  void reserve(const at::Tensor& values);

  // Encodes `values` and starts the first message; never waits for a peer. `values` is float32 and in use
  // until next() has returned null; a device tensor is copied to the CPU and back. Returns null if there is
  // nothing to communicate. Throws UsageError naming another dtype.
  Work start(const at::Tensor& values);

  // Starts the next message after the last one is complete. Returns null at the end, with the result in
  // `values`.
  Work next();

  // Returns the number of messages of an all-reduce. Call it after reserve().
  int messages() const { return gathers_ ? 1 : 2; }

  // Runs the whole all-reduce. Blocking.
  void run(const at::Tensor& values);

  // Undefined tensors before reserve(). May be written between all-reduces.
  const ErrorFeedback& feedback() const { return feedback_; }

 private:
  enum class Stage { idle, gathering, exchanging, gathering_sums };

  // Returns this rank's values split into the ranks' parts; the last ones may be short or empty.
  std::vector<at::Tensor> parts_of(const at::Tensor& values) const;

  const std::shared_ptr<collective::Codec> codec_;
  const std::size_t rank_;
  const std::size_t size_;
  const float scale_;  // applied to the sum
  const bool always_gathers_;
  const bool error_feedback_;
  CodedReduceScatter sums_;
  CodedAllGather encodings_;  // values if gathers_, otherwise sums

  Stage stage_ = Stage::idle;
  DenseTensor copied_;           // undefined if the caller's tensor is encoded without a copy
  at::Tensor values_;            // one dimension, on the CPU
  std::int64_t count_ = 0;       // number of values that the buffers were made for
  bool gathers_ = false;         // gathers instead of exchanging parts
  std::int64_t part_count_ = 0;  // values per rank
  ErrorFeedback feedback_;
};

// Reduces a float32 tensor of any strides and device in place: every rank ends with the same sum or average
// of the ranks' decoded tensors. `codec` is a name for collective::make_codec. Blocking, without error
// feedback.
void all_reduce(at::Tensor& tensor, const Group& group, std::string_view codec, ReduceOp op = ReduceOp::SUM);

}  // namespace rondo
