#pragma once

#include <torch/nn/module.h>

#include <map>
#include <span>
#include <string>
#include <vector>

namespace rondo {

// A number that modules count in a step: a sum, or with a weight the mean of what was added with weights.
struct StepFigure {
  double sum = 0;     // of what was added; with a weight of each part times its weight
  double weight = 0;  // 0: it is a sum
  // The sum, or the mean.
  double value() const { return weight > 0 ? sum / weight : sum; }
  // Of other modules, steps or ranks.
  StepFigure& operator+=(const StepFigure& other) {
    sum += other.sum;
    weight += other.weight;
    return *this;
  }
};
// By name, of this rank.
using StepFigures = std::map<std::string, StepFigure>;

// A module that counts something of its own while it trains, for metrics.jsonl: a base beside
// torch::nn::Module.
class CountsFigures {
 public:
  virtual ~CountsFigures() = default;
  // Adds what was counted since the last call; the same names on all ranks.
  virtual void take_figures(StepFigures& figures) = 0;
};

// The modules of `model` that count something, in the model's order. To find them takes microseconds.
std::vector<CountsFigures*> counting_modules(const torch::nn::Module& model);
// What these modules have counted since the last call.
StepFigures take_figures(std::span<CountsFigures* const> modules);

}  // namespace rondo
