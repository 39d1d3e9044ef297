#include "rondo/nn/model_tensors.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/types.h>

#include <unordered_set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

std::vector<NamedModule> modules_of(const torch::nn::Module& model) {
  // Returns non-const modules of a const model, as Module::modules() does.
  std::vector<NamedModule> modules = {{"", const_cast<torch::nn::Module*>(&model)}};
  for (const auto& entry : model.named_modules("", /*include_self=*/false))
    modules.push_back({entry.key(), entry.value().get()});
  return modules;
}

namespace {

std::vector<ModelTensor> without_repetitions(std::vector<ModelTensor> tensors) {
  std::unordered_set<const void*> seen;
  std::erase_if(tensors, [&](const ModelTensor& entry) {
    return !entry.tensor.defined() || !seen.insert(entry.tensor.unsafeGetTensorImpl()).second;
  });
  return tensors;
}

std::vector<at::Tensor> without_names(const std::vector<ModelTensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const ModelTensor& entry : tensors) result.push_back(entry.tensor);
  return result;
}

}  // namespace

std::vector<at::Tensor> ModelTensors::buffer_tensors() const { return without_names(buffers); }

std::vector<at::Tensor> ModelTensors::all_tensors() const {
  std::vector<at::Tensor> result = without_names(parameters);
  for (const ModelTensor& buffer : buffers) result.push_back(buffer.tensor);
  return result;
}

std::vector<at::Tensor> distinct_parameters(const torch::nn::Module& module) {
  return without_names(tensors_of(module).parameters);
}

ModelTensors without_repetitions(ModelTensors tensors) {
  return {without_repetitions(std::move(tensors.parameters)),
          without_repetitions(std::move(tensors.buffers))};
}

ModelTensors without_ignored(ModelTensors tensors, const std::vector<std::string>& ignored) {
  for (const std::string& name : ignored) {
    const auto is_called_so = [&](const ModelTensor& tensor) { return tensor.name == name; };
    if (std::erase_if(tensors.parameters, is_called_so) + std::erase_if(tensors.buffers, is_called_so) == 0)
      throw UsageError(
          str("'", name, "' is to be ignored, and the model has no parameter or buffer of that name"));
  }
  return tensors;
}

ModelTensors tensors_of(const torch::nn::Module& model) {
  ModelTensors result;
  for (const auto& entry : model.named_parameters())
    result.parameters.push_back({entry.key(), entry.value()});
  for (const auto& entry : model.named_buffers()) result.buffers.push_back({entry.key(), entry.value()});
  return without_repetitions(std::move(result));
}

ModelTensors tensors_of(const torch::jit::Module& model) {
  ModelTensors result;
  for (const auto& entry : model.named_parameters()) result.parameters.push_back({entry.name, entry.value});
  for (const auto& entry : model.named_buffers()) result.buffers.push_back({entry.name, entry.value});
  return without_repetitions(std::move(result));
}

std::string describe_shape(const at::Tensor& tensor) {
  std::string dtype = c10::toString(tensor.scalar_type());
  switch (tensor.scalar_type()) {
    case at::kFloat:
      dtype = "float32";
      break;
    case at::kDouble:
      dtype = "float64";
      break;
    case at::kHalf:
      dtype = "float16";
      break;
    case at::kBFloat16:
      dtype = "bfloat16";
      break;
    default:
      break;
  }
  return str(dtype, " [", join(tensor.sizes(), ", "), "]");
}

FrozenParameters::FrozenParameters(const torch::nn::Module& module)
    : parameters_(distinct_parameters(module)) {
  std::erase_if(parameters_, [](const at::Tensor& parameter) { return !parameter.requires_grad(); });
  for (const at::Tensor& parameter : parameters_) parameter.set_requires_grad(false);
}

FrozenParameters::~FrozenParameters() {
  for (const at::Tensor& parameter : parameters_) parameter.set_requires_grad(true);
}

std::vector<SparseLayer> sparse_layers(const torch::nn::Module& module) {
  std::vector<SparseLayer> layers;
  for (const auto& [name, layer] : modules_of(module)) {
    const auto* embedding = layer->as<torch::nn::EmbeddingImpl>();
    const auto* bag = layer->as<torch::nn::EmbeddingBagImpl>();
    if (embedding != nullptr && embedding->options.sparse()) layers.push_back({name, embedding->weight});
    if (bag != nullptr && bag->options.sparse()) layers.push_back({name, bag->weight});
  }
  return layers;
}

}  // namespace rondo
