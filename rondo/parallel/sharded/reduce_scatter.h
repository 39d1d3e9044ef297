#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rondo/backend/coded_collectives.h"
#include "rondo/backend/group.h"
#include "rondo/base/bytes.h"
#include "rondo/memory/scope.h"
#include "rondo/parallel/gradients/transfer.h"
#include "rondo/parallel/sharded/flat_parameters.h"
#include "rondo/parallel/sharded/unit_memory.h"

namespace rondo {

// Returns the approximate memory in bytes that `codec` needs on each rank ("none": 0): error feedback and
// encodings. `gradients`: bytes of the model's float32 gradients, which `ranks` share. Throws like
// collective::make_codec().
Bytes codec_memory(const std::string& codec, Bytes gradients, int ranks);

// A reduction of a unit's float32 gradients, encoded by a codec, segment by segment. Each rank sends every
// other rank the encoding of that rank's shard, and sums the shards received (coded_collectives.h). Replicas
// of a shard are combined by an all-reduce. If every rank needs the whole sum, each rank then sends the
// encoding of its shard. Encoding errors are added to the gradients of the next pass. Calls have the order of
// ReduceScatter.
class CodedSegments {
 public:
  // `replicas`: ranks that hold the same shard; not a member if there are none. `gathers`: whether every rank
  // needs the whole sum.
  CodedSegments(const std::string& codec, const FlatLayout& layout, const Group& shards,
                const Group& replicas, bool gathers);

  // Encodes segment `index`, with parts[r] for rank r, and returns the operations to run, in order. The last
  // one leaves the sum of this rank's part in `sum`, or the whole sum in `parts` if all ranks need it.
  std::vector<TransferStep> encode(std::size_t index, const std::vector<at::Tensor>& parts,
                                   const at::Tensor& sum, Bytes bytes);

  // Returns the error feedback by name; the tensors are not copied.
  CommState memory() const;

 private:
  struct Segment {
    std::unique_ptr<CodedReduceScatter> scatter;  // null with one rank
    std::unique_ptr<CodedAllReduce> copies;       // null without replicas
    std::unique_ptr<CodedAllGather> gather;       // null if no rank needs the whole sum
    std::vector<std::span<float>> residuals;      // one per rank, for its part
    std::span<float> sum_residual;                // for this rank's sum
  };

  const bool gathers_;
  std::vector<Segment> segments_;
  ErrorFeedback
      feedback_;  // of the whole buffer, and of this rank's shard if its sums are encoded for all ranks
};

// A transfer through a flat buffer, on any engine: a reduce-scatter in segments, so that each rank sums its
// shard.
// `.grad` then is this rank's flat part of each gradient. If every rank needs the whole sum, an all-gather of
// each segment follows. It may be deferred to the unit's next forward pass (DeAR, Zhang et al., 2023), since
// nothing waits for it before finish(); `.grad` then is the whole gradient.
class ReduceScatter final : public Transfer {
 public:
  struct Options {
    Group shards;          // ranks among which the sum is divided
    Group replicas;        // ranks that hold the same shard; not a member if there are none
    bool gathers = false;  // whether every rank needs the whole sum
    bool keeps_buffer =
        false;          // whether the sum stays in the flat buffer until recycle(): always if `gathers`
    std::string codec;  // codec of float32 gradients; empty: none
    MemoryUnit unit;    // for the memory tracker
  };
  // The bucket has all parameters of `layout`. All arguments but `bucket` and `options` must outlive the
  // object.
  ReduceScatter(Bucket bucket, const WeightSource& weight, const FlatLayout& layout, BufferPool& buffers,
                Options options);

  void begin() override;
  // Moves the gradient out of `.grad`. A missing one counts as zeros.
  void take(std::size_t member) override;
  void take_missing(std::size_t member) override { take(member); }

  // Returns the buffer of this rank's sums, to which `.grad` refers after finish(), and gives up its
  // ownership. Undefined if the sums are in the flat buffer.
  at::Tensor take_sums() { return std::exchange(sums_, {}); }
  // Allows reuse of the flat buffer. No other references may exist. No-op while launched.
  void recycle();
  // Returns the codec's error feedback, by name. The tensors are not copied, and their sizes never change.
  CommState memory() const { return coded_ ? coded_->memory() : CommState(); }

 private:
  std::size_t segments() const override { return layout_.segments(); }
  std::vector<TransferStep> steps(std::size_t segment) override;
  void store(const at::Tensor& result, const std::vector<bool>& untouched) override;
  void discard() noexcept override;

  // Returns the operations for a segment without a codec: the parts of all ranks are summed into `sum`.
  std::vector<TransferStep> plain_steps(const std::vector<at::Tensor>& parts, const at::Tensor& sum,
                                        Bytes bytes) const;
  void zero_padding();

  const FlatLayout& layout_;
  BufferPool& buffers_;
  const Options options_;
  std::unique_ptr<CodedSegments> coded_;  // null without a codec
  at::Tensor factor_;                     // scalar of the current pass
  at::Tensor flat_;                       // all gradients of this rank, and the sums if kept
  at::Tensor sums_;                       // this rank's shard of the sum
};

}  // namespace rondo
