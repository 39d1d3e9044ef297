#include "rondo/nn/step_figures.h"

#include "rondo/nn/model_tensors.h"

namespace rondo {

std::vector<CountsFigures*> counting_modules(const torch::nn::Module& model) {
  std::vector<CountsFigures*> found;
  for (const auto& [name, module] : modules_of(model)) {
    if (auto* const counts = dynamic_cast<CountsFigures*>(module)) found.push_back(counts);
  }
  return found;
}

StepFigures take_figures(std::span<CountsFigures* const> modules) {
  StepFigures figures;
  for (CountsFigures* const module : modules) module->take_figures(figures);
  return figures;
}

}  // namespace rondo
