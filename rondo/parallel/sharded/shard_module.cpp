#include "rondo/parallel/sharded/shard_module.h"

#include <map>
#include <typeinfo>

namespace rondo {

std::shared_ptr<torch::nn::Module> make_parameter_module(const std::vector<ModelTensor>& parameters) {
  auto root = std::make_shared<torch::nn::Module>("parameters");
  std::map<std::string, std::shared_ptr<torch::nn::Module>> modules = {{"", root}};
  for (const ModelTensor& parameter : parameters) {
    std::shared_ptr<torch::nn::Module> module = root;
    std::size_t begin = 0;
    for (std::size_t dot = parameter.name.find('.'); dot != std::string::npos;
         dot = parameter.name.find('.', begin)) {
      std::shared_ptr<torch::nn::Module>& child = modules[parameter.name.substr(0, dot)];
      if (!child) {
        child = module->register_module(parameter.name.substr(begin, dot - begin),
                                        std::make_shared<torch::nn::Module>("part"));
      }
      module = child;
      begin = dot + 1;
    }
    module->register_parameter(parameter.name.substr(begin), parameter.tensor,
                               parameter.tensor.requires_grad());
  }
  return root;
}

// A module that computes has a class derived from torch::nn::Module.
bool is_parameter_module(const torch::nn::Module& module) {
  return typeid(module) == typeid(torch::nn::Module);
}

}  // namespace rondo
