#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

namespace rondo {

// The proportions of the learning rates of an optimizer's parameter groups. A schedule sets the rate of the
// first group whose rate is not zero, and the others follow in proportion.
class GroupRates {
 public:
  GroupRates() = default;
  explicit GroupRates(const torch::optim::Optimizer& optimizer);

  // Sets the rates of all groups for this rate of the first. `optimizer` is the one given to the constructor.
  void set(torch::optim::Optimizer& optimizer, double learning_rate) const;

 private:
  std::vector<double> shares_;  // multiples of the first group's rate; empty if all rates are zero
};

// Returns the rate of the first group whose rate is not zero; 0 if all are zero.
double rate_of(const torch::optim::Optimizer& optimizer);

}  // namespace rondo
