#include "rondo/parallel/gradients/reducer.h"

#include <torch/types.h>

#include <utility>

#include "rondo/base/time.h"

namespace rondo {

void Reducer::begin(const std::vector<std::size_t>& gradients) {
  buckets_.clear();
  for (const std::size_t awaited : gradients) buckets_.push_back({.awaited = awaited});
  next_ = 0;
  weight_.reset();
}

bool Reducer::add(std::size_t bucket) {
  Progress& own = buckets_[bucket];
  return own.awaited > 0 && --own.awaited == 0;
}

void Reducer::complete(std::size_t begin, std::size_t end) {
  for (std::size_t bucket = begin; bucket < end; ++bucket) {
    if (!std::exchange(buckets_[bucket].complete, true)) buckets_[bucket].ready_ns = monotonic_ns();
  }
  for (; next_ < buckets_.size(); ++next_) {
    const std::size_t bucket = in_turn(next_);
    if (!buckets_[bucket].complete) return;
    send(bucket);
  }
}

const GradientWeight& Reducer::announced_weight(bool divide_by_active) {
  if (!weight_) {
    announcement_.ensure_started();
    weight_ = announcement_.gradient_weight(divide_by_active);
  }
  return *weight_;
}

std::vector<int> count_ranks(const std::vector<bool>& flags, const Group& group) {
  const std::vector<int> own(flags.begin(), flags.end());
  std::vector<at::Tensor> message = {torch::tensor(own, at::kInt).to(group.traits().control_device())};
  group.backend()->allreduce(message)->wait();
  const at::Tensor counts = message.front().cpu();
  const int* const first = counts.const_data_ptr<int>();
  return {first, first + counts.numel()};
}

}  // namespace rondo
