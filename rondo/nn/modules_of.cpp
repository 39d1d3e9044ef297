#include "rondo/nn/modules_of.h"

namespace rondo {

std::vector<NamedModule> modules_of(const torch::nn::Module& model) {
  // As Module::modules() does, gives away what a const module holds.
  std::vector<NamedModule> modules = {{"", const_cast<torch::nn::Module*>(&model)}};
  for (const auto& entry : model.named_modules("", /*include_self=*/false))
    modules.push_back({entry.key(), entry.value().get()});
  return modules;
}

}  // namespace rondo
