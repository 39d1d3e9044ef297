#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "rondo/parallel/gradients/bucket.h"
#include "rondo/parallel/gradients/step_announcement.h"
#include "rondo/parallel/schedule/bucket_future.h"
#include "rondo/parallel/schedule/communication_queue.h"
#include "rondo/parallel/schedule/policy.h"

namespace rondo {

// One of the consecutive operations that reduce a segment of a bucket.
struct TransferStep {
  const char* collective = "";  // see CommunicationSegment
  Bytes bytes;                  // see CommunicationSegment
  // Starts the operation without waiting. The previous step must be finished.
  std::function<BucketFuture()> start;
};

// A transfer of one bucket's gradients from `.grad` on every rank to their weighted sum, in `.grad` again:
// the whole sum, or this rank's part of it (sharded/reduce_scatter.h). The owner decides which gradients the
// bucket has and when it is launched. The calls of a pass are begin(); take() or take_missing() once for each
// gradient; launch(); finish(), or abandon() after a failure. Members are numbered within the bucket. Not
// thread-safe.
class Transfer {
 public:
  // Provides the averaging weight of a pass. It is called when the weight is first needed, because it may
  // block until other ranks have announced theirs.
  using WeightSource = std::function<const GradientWeight&()>;

  // `weight` must outlive the object.
  Transfer(Bucket bucket, const WeightSource& weight) : bucket_(std::move(bucket)), weight_(weight) {}
  virtual ~Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  const Bucket& bucket() const { return bucket_; }

  virtual void begin() {}
  // Takes a complete gradient, and copies it to the send buffer, if there is one.
  virtual void take(std::size_t member) = 0;
  // Takes a gradient that was not computed in this pass: contributes the old content of `.grad`, or zeros.
  virtual void take_missing(std::size_t member) = 0;
  // Queues the reduction without waiting for it, in segments placed by `order`. All gradients must have been
  // taken. Called in the same order on all ranks. `common`: the fields of segments that the transfer does not
  // set: unit, description, time, timeout. `queue` must outlive the pass.
  void launch(CommunicationQueue& queue, const SegmentOrder& order, const CommunicationSegment& common);
  // Returns true between launch() and finish().
  bool launched() const { return launched_; }
  // Returns true if finish() would not block.
  bool arrived();
  // Blocks until the reduction is complete, and writes its result to `.grad`, except where `untouched`
  // requires `.grad` as it was before the pass. `untouched` is indexed by the parameters' numbers in the
  // model; empty means none.
  void finish(const std::vector<bool>& untouched);
  // Discards the state of a pass that failed, after CommunicationQueue::abandon().
  void abandon() noexcept;

 protected:
  // Returns the number of segments, which are queued independently of each other.
  virtual std::size_t segments() const { return 1; }
  // Returns the operations that reduce a segment, in order.
  virtual std::vector<TransferStep> steps(std::size_t segment) = 0;
  // Implements finish() after the reduction. `result` is the result of the last operation's future.
  virtual void store(const at::Tensor& result, const std::vector<bool>& untouched) = 0;
  // Implements abandon().
  virtual void discard() noexcept {}

  const GradientWeight& weight() const { return weight_(); }
  bool is_untouched(std::size_t member, const std::vector<bool>& untouched) const {
    return !untouched.empty() && untouched[bucket_.numbers[member]];
  }

 private:
  const Bucket bucket_;
  const WeightSource& weight_;
  CommunicationQueue* queue_ = nullptr;
  std::vector<CommunicationQueue::Ticket> tickets_;  // tickets of the segments' last steps
  bool launched_ = false;
};

// A transfer that reduces large gradients in place, without a copy. Gradients below 64 KiB share flat
// buckets, because latency rather than bandwidth dominates their cost. For engines with registered memory
// (EngineTraits): large CPU allocations are in shared memory, and each rank reduces its slice of the elements
// directly from and to all ranks' gradients. On one host communication costs processor time, so avoiding a
// copy saves time even where computation overlaps it.
class InPlaceAllReduce final : public Transfer {
 public:
  InPlaceAllReduce(Bucket bucket, const WeightSource& weight, Group group);

  // Also allocates the gradient if it is undefined.
  void take(std::size_t member) override;
  void take_missing(std::size_t member) override;

 private:
  struct Missing {
    std::size_t member;
    at::Tensor before;  // content of `.grad` before the pass
  };

  std::vector<TransferStep> steps(std::size_t segment) override;
  BucketFuture start();
  void store(const at::Tensor& result, const std::vector<bool>& untouched) override;
  void discard() noexcept override { missing_.clear(); }

  const Group group_;
  std::optional<FlatBucket> small_;  // empty for a large gradient
  std::vector<Missing> missing_;     // members without a gradient in this pass
};

// Returns a plan in which each large gradient is a bucket and small ones share buckets. Buckets are ordered
// by the position of their last gradient in `order`, a permutation of all parameters. `bucket_bytes`: size of
// a bucket of small gradients, at most 64 KiB.
BucketPlan plan_in_place(const std::vector<ModelTensor>& parameters, std::span<const std::size_t> order,
                         Bytes bucket_bytes = KiB(64));
// Returns the bytes of the flat buckets, which exist as long as their transfers.
std::uint64_t bytes_beside_gradients(const std::vector<ModelTensor>& parameters);

}  // namespace rondo
