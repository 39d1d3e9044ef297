#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "rondo/backend/collectives.h"
#include "rondo/backend/requests/dense_tensor.h"
#include "rondo/collective/codec/codec.h"

namespace rondo {

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

  // `op` is SUM or AVG. Without error feedback each tensor stands for itself.
  CodedAllReduce(std::unique_ptr<collective::Codec> codec, c10::intrusive_ptr<c10d::Backend> backend,
                 ReduceOp op, bool error_feedback);

  // Makes the buffers for tensors of this length, so that residual() is there; start() does it by itself.
  void reserve(const at::Tensor& values);

  // Encodes, and starts the first message; never waits for a peer. `values` is float32, and is in use until
  // next() has returned null; a tensor of a device is copied to the CPU and back. Throws UsageError naming
  // another dtype. Null when there is nothing to communicate.
  Work start(const at::Tensor& values);

  // The next message, when the last one is complete; null at the end, with the result in `values`.
  Work next();

  // All of it. Blocking.
  void run(const at::Tensor& values);

  // What earlier encodings have left out of each value; undefined without error feedback or before reserve().
  // May be written between all-reduces.
  at::Tensor residual() const { return residual_; }
  // What earlier encodings have left out of this rank's part of the sums; undefined likewise, and where no
  // sums are encoded.
  at::Tensor sum_residual() const { return sum_residual_; }

 private:
  // The part of the values that belongs to a rank; the last parts may be short or empty.
  struct Part {
    std::size_t begin = 0;
    std::size_t count = 0;
  };

  // Values are encoded in segments that stay in the second-level cache from one step of the work to the next.
  // Calls visit(values of the segment, where its encoding begins in a slot).
  template <class Visit>
  void for_each_segment(const Part& part, const Visit& visit) const;
  std::size_t encoded_bytes(std::size_t values) const;
  void encode_part(const Part& part, std::size_t slot);
  std::span<const std::byte> received(std::size_t rank, std::size_t begin, std::size_t values) const;
  Part part(std::size_t rank) const;
  std::span<float> values_of(const Part& part) const;
  Work exchange_sums();
  void add_encodings();
  void take_sums();

  enum class Stage { idle, gathering, exchanging, gathering_sums };

  const std::unique_ptr<collective::Codec> codec_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
  const std::size_t rank_;
  const std::size_t size_;
  const float scale_;  // of the sum
  const bool error_feedback_;

  Stage stage_ = Stage::idle;
  DenseTensor copied_;          // undefined where the caller's tensor is encoded where it lies
  at::Tensor values_;           // contiguous, on the CPU
  std::size_t count_ = 0;       // values, for which what follows was made
  bool gathers_ = false;        // instead of exchanging
  std::size_t part_count_ = 0;  // values per rank
  std::size_t segment_ = 0;     // values encoded at a time
  std::size_t slot_ = 0;        // bytes between two ranks' encodings
  at::Tensor sent_;             // uint8
  at::Tensor received_;         // uint8, a slot a rank
  at::Tensor sum_;              // of one segment of this rank's part
  at::Tensor residual_;         // of all values
  at::Tensor sum_residual_;     // of this rank's sum
};

// In place on a float32 tensor of any strides and device: every rank ends with the same sum or average of
// what the codec makes of the ranks' tensors. `codec` is a name for collective::make_codec. Blocking, no
// error feedback.
void all_reduce(at::Tensor& tensor, const Group& group, std::string_view codec, ReduceOp op = ReduceOp::SUM);

}  // namespace rondo
