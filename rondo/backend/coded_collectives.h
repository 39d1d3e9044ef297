#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "rondo/backend/collectives.h"
#include "rondo/backend/requests/dense_tensor.h"
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

  // Length of the encoding of so many values, in bytes.
  std::size_t encoded_bytes(std::size_t values) const;
  // Distance between two encodings of `longest` values, in bytes.
  std::size_t slot_bytes() const { return slot_; }

  // Encodes values; `residual` is empty, or as long as `values`.
  void encode(std::span<const float> values, std::byte* encoded, std::span<float> residual) const;
  // Writes the values of an encoding.
  void decode(const std::byte* encoded, std::span<float> values) const;
  // Calls visit(first value, number of values, where their encoding begins) for each segment of `values`.
  template <class Visit>
  void for_each_segment(std::size_t values, const Visit& visit) const {
    for (std::size_t begin = 0, offset = 0; begin < values; begin += segment_, offset += segment_bytes_)
      visit(begin, std::min(segment_, values - begin), offset);
  }
  // values += the segment that is encoded at `encoded`; or = with `first`.
  void add_segment(const std::byte* encoded, std::span<float> values, bool first) const;
  std::size_t segment() const { return segment_; }  // in values

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

  // Over the engine's messages.
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

  // Over the engine's messages.
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

// All-reduces of one stream of float32 tensors in which a codec's encodings travel instead of the values,
// over any engine of c10d. Every rank ends with the same bits. With error feedback what encodings leave out
// of one tensor of the stream is added to the next.
//
// Two ways, chosen by what is known to all ranks:
// - exchange: rank r gets the encodings of part r from all ranks, adds what they stand for in rank order in
//   float32 (its own values unencoded), encodes the sum, and all ranks get all sums. Per rank 2 (p-1)/p times
//   the encoded bytes; both encodings have a residual of their own (Tang et al., "DoubleSqueeze", ICML 2019).
// - gather: all ranks get all encodings and add what they stand for in rank order. Per rank (p-1) times the
//   encoded bytes: no more for two ranks, and a sum of sparse encodings would not be sparse.
//
// One thread at a time; the same calls in the same order on all ranks.
class CodedAllReduce {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  // `op` is SUM or AVG. Without error feedback each tensor stands for itself. `always_gathers`: whatever the
  // length, for engines that have no all_to_all.
  CodedAllReduce(const std::shared_ptr<collective::Codec>& codec,
                 const c10::intrusive_ptr<c10d::Backend>& backend, ReduceOp op, bool error_feedback,
                 bool always_gathers = false);

  // Makes the buffers for tensors of this length, so that residual() is there; start() does it by itself.
  void reserve(const at::Tensor& values);

  // Encodes, and starts the first message; never waits for a peer. `values` is float32, and is in use until
  // next() has returned null; a tensor of a device is copied to the CPU and back. Throws UsageError naming
  // another dtype. Null when there is nothing to communicate.
  Work start(const at::Tensor& values);

  // The next message, when the last one is complete; null at the end, with the result in `values`.
  Work next();

  // How many messages an all-reduce takes; after reserve().
  int messages() const { return gathers_ ? 1 : 2; }

  // All of it. Blocking.
  void run(const at::Tensor& values);

  // What earlier encodings have left out of each value; undefined without error feedback or before reserve().
  // May be written between all-reduces.
  at::Tensor residual() const { return residual_; }
  // What earlier encodings have left out of this rank's part of the sums; undefined likewise, and where no
  // sums are encoded.
  at::Tensor sum_residual() const { return sum_residual_; }

 private:
  enum class Stage { idle, gathering, exchanging, gathering_sums };

  // This rank's values in the parts of each rank; the last ones may be short or empty.
  std::vector<at::Tensor> parts_of(const at::Tensor& values) const;

  const std::shared_ptr<collective::Codec> codec_;
  const std::size_t rank_;
  const std::size_t size_;
  const float scale_;  // of the sum
  const bool always_gathers_;
  const bool error_feedback_;
  CodedReduceScatter sums_;
  CodedAllGather encodings_;  // of values where it gathers, otherwise of sums

  Stage stage_ = Stage::idle;
  DenseTensor copied_;           // undefined where the caller's tensor is encoded where it lies
  at::Tensor values_;            // of one dimension, on the CPU
  std::int64_t count_ = 0;       // values, for which what follows was made
  bool gathers_ = false;         // instead of exchanging
  std::int64_t part_count_ = 0;  // values per rank
  at::Tensor residual_;          // of all values
  at::Tensor sum_residual_;      // of this rank's sum
};

// In place on a float32 tensor of any strides and device: every rank ends with the same sum or average of
// what the codec makes of the ranks' tensors. `codec` is a name for collective::make_codec. Blocking, no
// error feedback.
void all_reduce(at::Tensor& tensor, const Group& group, std::string_view codec, ReduceOp op = ReduceOp::SUM);

}  // namespace rondo
