#pragma once

#include <torch/nn/module.h>

#include <map>
#include <span>
#include <string>
#include <vector>

namespace rondo {

// A number that modules count in a step: a sum or, with a weight, a weighted mean.
struct StepFigure {
  double sum = 0;     // sum of values; with a weight, of each value times its weight
  double weight = 0;  // sum of weights; 0: the figure is a sum
  // Returns the sum or the mean.
  double value() const { return weight > 0 ? sum / weight : sum; }
  // Adds the figure of another module, step or rank.
  StepFigure& operator+=(const StepFigure& other) {
    sum += other.sum;
    weight += other.weight;
    return *this;
  }
};
// Figures of this rank by name.
using StepFigures = std::map<std::string, StepFigure>;

// A mixin for modules that count figures of their own in training, for metrics.jsonl; a base class beside
// torch::nn::Module.
class CountsFigures {
 public:
  virtual ~CountsFigures() = default;
  // Adds the counts since the last call; the same names on all ranks.
  virtual void take_figures(StepFigures& figures) = 0;
};

// Returns the modules of `model` that count figures, in the model's order. The search takes microseconds.
std::vector<CountsFigures*> counting_modules(const torch::nn::Module& model);
// Returns the modules' counts since the last call.
StepFigures take_figures(std::span<CountsFigures* const> modules);

}  // namespace rondo
