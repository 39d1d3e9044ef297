#include "rondo/nn/step_figures.h"

namespace rondo {

std::vector<CountsFigures*> counting_modules(const torch::nn::Module& model) {
  std::vector<CountsFigures*> found;
  for (const auto& module : model.modules()) {
    if (auto* const counts = dynamic_cast<CountsFigures*>(module.get())) found.push_back(counts);
  }
  return found;
}

StepFigures take_figures(std::span<CountsFigures* const> modules) {
  StepFigures figures;
  for (CountsFigures* const module : modules) module->take_figures(figures);
  return figures;
}

}  // namespace rondo
