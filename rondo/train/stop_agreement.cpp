#include "rondo/train/stop_agreement.h"

#include <torch/types.h>

#include <algorithm>

namespace rondo {
namespace {

constexpr double kSecondsUnheard = 0.25;

}  // namespace

bool stop_on_any(Strategy& strategy, const std::function<bool()>& requested) {
  if (!requested) return false;
  const bool own = requested();
  if (strategy.context().world_size() == 1) return own;
  at::Tensor any = at::tensor({own ? 1.0 : 0.0}, at::kDouble);
  all_reduce(any, strategy.context().world(), ReduceOp::MAX);
  return any.item<double>() > 0;
}

StopAgreement::StopAgreement(Strategy& strategy, const std::function<bool()>& requested)
    : strategy_(strategy), requested_(requested), asked_at_(Clock::now()) {}

bool StopAgreement::after(std::int64_t round) {
  if (!requested_) return false;
  if (strategy_.context().world_size() == 1) return requested_();
  if (round < next_) return false;
  const double per_round = seconds(Clock::now() - asked_at_) / static_cast<double>(round - asked_after_);
  at::Tensor said = at::tensor({requested_() ? 1.0 : 0.0, per_round}, at::kDouble);
  all_reduce(said, strategy_.context().world(), ReduceOp::MAX);
  const double* values = said.data_ptr<double>();
  // The slowest rank's time decides, which all of them know now.
  const double rounds = std::clamp(kSecondsUnheard / std::max(values[1], 1e-9), 1.0, 1e6);
  next_ = round + static_cast<std::int64_t>(rounds);
  asked_after_ = round;
  asked_at_ = Clock::now();
  return values[0] > 0;
}

}  // namespace rondo
