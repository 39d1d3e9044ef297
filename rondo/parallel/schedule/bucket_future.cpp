#include "rondo/parallel/schedule/bucket_future.h"

#include <stdexcept>

namespace rondo {

BucketFuture BucketFuture::then(std::function<at::Tensor(at::Tensor)> compute) && {
  continuations_.push_back(
      {[compute = std::move(compute)](at::Tensor result) { return BucketFuture(compute(std::move(result))); },
       false});
  return std::move(*this);
}

BucketFuture BucketFuture::then_send(std::function<BucketFuture(at::Tensor)> send) && {
  continuations_.push_back({std::move(send), true});
  ++rounds_;
  return std::move(*this);
}

bool BucketFuture::arrived() { return !work_ || work_->isCompleted(); }

void BucketFuture::start_round(std::optional<Duration> timeout) {
  bool sends = false;
  while (!sends) {
    sends = continuations_.front().sends;
    run_next(timeout);
  }
}

at::Tensor BucketFuture::wait(std::optional<Duration> timeout) {
  while (!continuations_.empty()) run_next(timeout);
  wait_for_message(timeout);
  return result_;
}

void BucketFuture::abandon() noexcept {
  continuations_.clear();
  rounds_ = 0;
  try {
    wait_for_message();
  } catch (const std::exception&) {
    // The original error is reported instead.
  }
}

void BucketFuture::wait_for_message(std::optional<Duration> timeout) {
  const Work work = std::exchange(work_, nullptr);
  const auto limit = timeout ? std::chrono::duration_cast<std::chrono::milliseconds>(*timeout) : kNoTimeout;
  if (work && !work->wait(limit)) throw std::runtime_error("the operation was aborted");
}

void BucketFuture::run_next(std::optional<Duration> timeout) {
  wait_for_message(timeout);
  const Continuation continuation = std::move(continuations_.front());
  continuations_.pop_front();
  if (continuation.sends) --rounds_;
  BucketFuture next = continuation.run(result_);
  work_ = std::move(next.work_);
  result_ = std::move(next.result_);
  rounds_ += next.rounds_;
  continuations_.insert(continuations_.begin(), std::make_move_iterator(next.continuations_.begin()),
                        std::make_move_iterator(next.continuations_.end()));
}

}  // namespace rondo
