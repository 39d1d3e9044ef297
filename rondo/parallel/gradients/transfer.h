#pragma once

#include <functional>
#include <vector>

#include "rondo/parallel/gradients/bucket.h"
#include "rondo/parallel/gradients/gradient_weight.h"
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

}  // namespace rondo
