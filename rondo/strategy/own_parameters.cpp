#include "rondo/strategy/own_parameters.h"

#include <torch/types.h>

namespace rondo {
namespace {

std::set<std::string> names_of_parameters(ModelParts& parts) {
  std::set<std::string> names;
  for (const Shard& shard : parts.shards()) names.insert(shard.name);
  return names;
}

}  // namespace

NamedTensors saved_tensors(PreparedModel& prepared, const torch::nn::Module& model) {
  std::set<std::string> names = names_of_parameters(prepared.parts());
  for (const ModelTensor& buffer : prepared.parts().buffers()) names.insert(buffer.name);
  return tensors_named(model, names);
}

NamedTensors tensors_named(const torch::nn::Module& model, const std::set<std::string>& kept) {
  NamedTensors tensors = named_tensors(model);
  const auto further = shared_names(tensors, [&](const std::string& name) { return kept.contains(name); });
  std::erase_if(tensors, [&](const NamedTensor& entry) {
    return !kept.contains(entry.name) && !further.contains(entry.name);
  });
  return tensors;
}

std::vector<at::Tensor> own_parameters(PreparedModel& prepared, const MasterWeights* masters) {
  const std::set<std::string> names = names_of_parameters(prepared.parts());
  std::vector<at::Tensor> own;
  for (const ModelTensor& parameter : tensors_of(prepared.module()).parameters) {
    if (names.contains(parameter.name)) continue;
    own.push_back(masters != nullptr ? masters->of(parameter.tensor) : parameter.tensor);
  }
  return own;
}

NamedTensors with_own_parameters(NamedTensors parameters, const std::vector<at::Tensor>& own) {
  for (const at::Tensor& parameter : own) parameters.push_back({"", parameter});
  return parameters;
}

}  // namespace rondo
