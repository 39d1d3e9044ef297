#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "rondo/parallel/gradients/bucket.h"
#include "rondo/parallel/gradients/step_announcement.h"
#include "rondo/parallel/schedule/bucket_future.h"

namespace rondo {

// The way of one bucket's gradients from `.grad` on every rank to their weighted sum over the ranks, in
// `.grad` again. Others decide which gradients a bucket has, and when it goes. A pass is begin(); take() or
// take_missing() once for each gradient; start(); finish(), or abandon() where it failed. One thread at a
// time. Members are numbered within the bucket.
class Transfer {
 public:
  // The averaging weight of a pass. It is asked for when it is first needed, since it may have to wait for
  // other ranks.
  using WeightSource = std::function<const GradientWeight&()>;

  // `weight` outlives the object.
  Transfer(Bucket bucket, const WeightSource& weight) : bucket_(std::move(bucket)), weight_(weight) {}
  virtual ~Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  const Bucket& bucket() const { return bucket_; }

  virtual void begin() {}
  // The gradient is complete, and is taken to where it travels from.
  virtual void take(std::size_t member) = 0;
  // There was no gradient in this pass: what `.grad` holds from before, or zeros, is contributed.
  virtual void take_missing(std::size_t member) = 0;
  // All were taken: begins the reduction, without waiting. On all ranks in one order.
  virtual BucketFuture start() = 0;
  // The reduction is over, with this result: the sums are in `.grad` then, except where `untouched`, by the
  // parameters' numbers in the model, asks for `.grad` as it was. Empty: nowhere.
  virtual void finish(const at::Tensor& result, const std::vector<bool>& untouched) = 0;
  // Forgets what a pass that failed has left.
  virtual void abandon() noexcept {}

 protected:
  const GradientWeight& weight() const { return weight_(); }
  bool is_untouched(std::size_t member, const std::vector<bool>& untouched) const {
    return !untouched.empty() && untouched[bucket_.numbers[member]];
  }

 private:
  const Bucket bucket_;
  const WeightSource& weight_;
};

// Reduces every large gradient where autograd put it, without a copy; only gradients below 64 KiB, where the
// cost is in the message and not in the bytes, share flat buckets. For engines with registered
// memory (EngineTraits): CPU allocations of that size are shared memory, and each rank reduces its slice of
// the elements straight from and into all ranks' gradients. On one host communication is processor time, so
// what is not copied is gained even when computation hides it.
class InPlaceAllReduce final : public Transfer {
 public:
  InPlaceAllReduce(Bucket bucket, const WeightSource& weight, Group group);

  // Makes the gradient defined.
  void take(std::size_t member) override;
  void take_missing(std::size_t member) override;
  BucketFuture start() override;
  void finish(const at::Tensor& result, const std::vector<bool>& untouched) override;
  void abandon() noexcept override { missing_.clear(); }

 private:
  struct Missing {
    std::size_t member;
    at::Tensor before;  // what `.grad` held
  };

  const Group group_;
  std::optional<FlatBucket> small_;  // none for a large gradient
  std::vector<Missing> missing_;     // in this pass
};

// Which gradients travel together, in the order in which the last one of each bucket is expected; `order` is
// a permutation of all parameters. `bucket_bytes`: of small gradients together; 64 KiB at most.
BucketPlan plan_in_place(const std::vector<ModelTensor>& parameters, std::span<const std::size_t> order,
                         Bytes bucket_bytes = KiB(64));
// Bytes of the flat buckets, which stay as long as the transfers do.
std::uint64_t bytes_beside_gradients(const std::vector<ModelTensor>& parameters);

}  // namespace rondo
