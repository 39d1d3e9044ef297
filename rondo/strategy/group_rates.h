#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

namespace rondo {

// The learning rates of an optimizer's parameter groups in the proportions in which they were made: a
// schedule moves the first group whose rate is not zero, and the others along with it.
class GroupRates {
 public:
  GroupRates() = default;
  explicit GroupRates(const torch::optim::Optimizer& optimizer);

  // Sets the rates of all groups for a rate of the first. `optimizer` is the one it was made of.
  void set(torch::optim::Optimizer& optimizer, double learning_rate) const;

 private:
  std::vector<double> shares_;  // of the first group's rate, by group; empty where all rates are zero
};

// Returns the rate of the first group whose rate is not zero; 0 where all are.
double rate_of(const torch::optim::Optimizer& optimizer);

}  // namespace rondo
