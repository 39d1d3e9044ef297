#include "rondo/nn/model.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/types.h>

#include <algorithm>
#include <sstream>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {
namespace {

// A TorchScript module as a torch::nn module: the same tensors under the same names, in submodules along the
// path of each name.
class ScriptedModule final : public torch::nn::Module {
 public:
  explicit ScriptedModule(const torch::jit::Module& script) : Module("ScriptModule"), script_(script) {
    for (const auto& parameter : script.named_parameters()) {
      const auto [owner, name] = place_of(parameter.name);
      owner->register_parameter(name, parameter.value, parameter.value.requires_grad());
    }
    for (const auto& buffer : script.named_buffers()) {
      const auto [owner, name] = place_of(buffer.name);
      owner->register_buffer(name, buffer.value);
    }
  }

  void train(bool on = true) override {
    Module::train(on);
    script_.train(on);
  }

  Tensors forward(const Tensors& inputs) {
    const c10::IValue output = script_.forward(std::vector<c10::IValue>(inputs.begin(), inputs.end()));
    if (output.isTensor()) return {output.toTensor()};
    if (output.isTensorList()) return output.toTensorVector();
    if (!output.isTuple()) refuse(output.tagKind());
    Tensors outputs;
    for (const c10::IValue& element : output.toTuple()->elements()) {
      if (!element.isTensor())
        refuse(str("a tuple whose element ", outputs.size(), " is ", element.tagKind()));
      outputs.push_back(element.toTensor());
    }
    return outputs;
  }

 private:
  [[noreturn]] static void refuse(const std::string& returned) {
    throw UsageError(str("the TorchScript module's forward returned ", returned,
                         "; it must return a tensor, or a list or tuple of tensors"));
  }

  // Returns the module that contains "layers.0.weight", and the tensor's name there.
  std::pair<Module*, std::string> place_of(const std::string& path) {
    Module* owner = this;
    std::istringstream parts(path);
    std::string part;
    std::string next;
    std::getline(parts, part, '.');
    while (std::getline(parts, next, '.')) {
      const auto children = owner->named_children();
      const auto* child = children.find(part);
      owner = child != nullptr ? child->get()
                               : owner->register_module(part, std::make_shared<Module>("ScriptPart")).get();
      part = next;
    }
    return {owner, part};
  }

  torch::jit::Module script_;
};

void check_same(const std::vector<ModelTensor>& first, const std::vector<ModelTensor>& other, int replica) {
  for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
    const auto text = [i](const std::vector<ModelTensor>& tensors) {
      return i < tensors.size() ? str("'", tensors[i].name, "' ", describe_shape(tensors[i].tensor))
                                : str("nothing");
    };
    if (text(first) == text(other)) continue;
    throw UsageError(str("the model factory made another model for replica ", replica, ": it has ",
                         text(other), " where replica 0 has ", text(first),
                         "; it must make the same one at each call"));
  }
}

}  // namespace

void ForwardFunction::check_inputs(std::size_t given, std::size_t taken) {
  if (given == taken) return;
  throw UsageError(str("a batch has ", given, " input tensors, but the model's forward takes ", taken));
}

Tensors ForwardFunction::run(const Tensors& inputs) const {
  if (!run_) throw UsageError("the model has no forward function");
  Tensors outputs = run_(inputs);
  if (outputs.empty()) {
    throw UsageError(
        "the model's forward returned no tensor; it must return a tensor, or a vector or tuple of tensors");
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined())
      throw UsageError(str("output ", i, " of the model's forward is an undefined tensor"));
  }
  return outputs;
}

at::Tensor ForwardFunction::operator()(const at::Tensor& input) const {
  Tensors outputs = run({input});
  if (outputs.size() != 1)
    throw UsageError(str("the model's forward returned ", outputs.size(), " tensors where one is wanted"));
  return std::move(outputs.front());
}

Model as_model(const torch::jit::Module& module) {
  Model model;
  const auto scripted = std::make_shared<ScriptedModule>(module);
  model.name = module.type()->name() ? module.type()->name()->name() : "ScriptModule";
  model.config = nlohmann::json::object();
  model.forward = [raw = scripted.get()](const Tensors& inputs) { return raw->forward(inputs); };
  model.module = scripted;
  return model;
}

void detail::require_module(const torch::nn::Module* module) {
  if (module == nullptr) throw UsageError("the model's module is null");
}

ModelFactory only(Model model) {
  detail::require_module(model.module.get());
  return [held = std::make_shared<Model>(std::move(model))] {
    if (!held->module) {
      throw UsageError(
          "this strategy makes several copies of the model, but was given one that exists; give the trainer "
          "a "
          "function that makes the model");
    }
    return std::exchange(*held, {});
  };
}

std::vector<Model> make_replicas(const ModelFactory& factory, int count) {
  const at::NoGradGuard no_grad;
  std::vector<Model> models;
  for (int replica = 0; replica < count; ++replica) {
    models.push_back(next_model(factory));
    if (replica == 0) continue;
    const ModelTensors first = tensors_of(*models.front().module);
    const ModelTensors own = tensors_of(*models.back().module);
    check_same(first.parameters, own.parameters, replica);
    check_same(first.buffers, own.buffers, replica);
    const std::vector<at::Tensor> from = first.all_tensors();
    const std::vector<at::Tensor> to = own.all_tensors();
    for (std::size_t i = 0; i < from.size(); ++i) at::Tensor(to[i]).copy_(from[i]);
  }
  return models;
}

Model next_model(const ModelFactory& factory) {
  if (!factory) throw UsageError("there is no model factory: give a function that returns a Model");
  Model model = factory();
  if (!model.module)
    throw UsageError(
        "the model factory returned a Model whose module is null; set Model::module, or return "
        "as_model(...)");
  return model;
}

}  // namespace rondo
