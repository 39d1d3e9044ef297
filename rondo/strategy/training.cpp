#include "rondo/strategy/training.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/strategy/group_rates.h"

namespace rondo {

ShardedState Training::state() {
  prepared().parts().flush();
  return local_state(prepared(), &optimizer(), precision().master_weights());
}

void Training::state_loaded(std::int64_t /*steps*/) {
  precision().weights_changed();
  prepared().parts().publish_shards();
}

void Training::hand_over(const std::vector<int>& /*leaving*/) {
  throw UsageError("this strategy's training cannot be rebuilt for another world");
}

int Training::rebuild(const Context& /*context*/) {
  throw UsageError("this strategy's training cannot be rebuilt for another world");
}

GroupRates::GroupRates(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  const auto first = std::find_if(rates.begin(), rates.end(), [](double rate) { return rate != 0; });
  if (first == rates.end()) return;
  for (const double rate : rates) shares_.push_back(rate / *first);
}

void GroupRates::set(torch::optim::Optimizer& optimizer, double learning_rate) const {
  auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    // Groups that were added later, and all groups if proportions are unknown, get the rate itself.
    const double share = i < shares_.size() ? shares_[i] : 1.0;
    groups[i].options().set_lr(share * learning_rate);
  }
}

double rate_of(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    if (const double rate = group.options().get_lr(); rate != 0) return rate;
  }
  return 0;
}

}  // namespace rondo
