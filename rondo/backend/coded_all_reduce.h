#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>
#include <vector>

#include "rondo/backend/coded_shards.h"
#include "rondo/backend/collectives.h"
#include "rondo/backend/requests/dense_tensor.h"

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
