#include "rondo/models/script.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <map>

#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/models/script_source.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {
namespace {

using CompilationUnit = std::shared_ptr<torch::jit::CompilationUnit>;

torch::jit::Module empty_script(const CompilationUnit& unit) {
  torch::jit::Module module(c10::QualifiedName("__torch__.rondo.Model"), unit, /*shouldMangle=*/true);
  module.register_attribute("training", c10::BoolType::get(), false);
  return module;
}

// Modules of TorchScript get their type when they are made, so children come before their parents.
torch::jit::Module script_with_tensors(const torch::nn::Module& module, const CompilationUnit& unit) {
  torch::jit::Module script = empty_script(unit);
  for (const auto& child : module.named_children())
    script.register_module(child.key(), script_with_tensors(*child.value(), unit));
  for (const auto& parameter : module.named_parameters(/*recurse=*/false))
    script.register_parameter(parameter.key(), parameter.value(), /*is_buffer=*/false);
  for (const auto& buffer : module.named_buffers(/*recurse=*/false))
    script.register_parameter(buffer.key(), buffer.value(), /*is_buffer=*/true);
  return script;
}

// In evaluation mode, back to the former mode afterwards, without gradients.
Tensors inference(const Model& model, const at::Tensor& input) {
  const at::NoGradGuard no_gradients;
  const bool training = model.module->is_training();
  model.module->eval();
  Tensors outputs = model.forward.run({input});
  model.module->train(training);
  return outputs;
}

void trace_forward(const Model& model, const at::Tensor& example, torch::jit::Module& script) {
  const auto run = [&](torch::jit::Stack inputs) {
    torch::jit::Stack results;
    const Tensors outputs = inference(model, inputs.at(0).toTensor());
    if (outputs.size() == 1) return torch::jit::Stack{outputs.front()};
    return torch::jit::Stack{c10::ivalue::Tuple::create({outputs.begin(), outputs.end()})};
  };
  const auto no_names = [](const at::Tensor&) { return std::string(); };
  std::shared_ptr<torch::jit::tracer::TracingState> state;
  try {
    state = torch::jit::tracer::trace({example}, run, no_names, /*strict=*/true, /*force_outplace=*/false,
                                      &script, {"x"})
                .first;
  } catch (const c10::Error& error) {
    throw UsageError(
        str("model ", model.name, " cannot be traced for TorchScript: ", error.what_without_backtrace()));
  }
  const auto type = script.type();
  auto* const method = script._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*type->name(), "forward"), state->graph);
  type->addMethod(method);
}

Tensors outputs_of_script(torch::jit::Module& script, const at::Tensor& input) {
  const at::NoGradGuard no_gradients;
  const c10::IValue output = script.forward({input});
  if (output.isTensor()) return {output.toTensor()};
  Tensors outputs;
  for (const c10::IValue& each : output.toTuple()->elements()) outputs.push_back(each.toTensor());
  return outputs;
}

bool gives_the_same(const Model& model, torch::jit::Module& script, const at::Tensor& input) {
  try {
    const Tensors expected = inference(model, input), found = outputs_of_script(script, input);
    if (expected.size() != found.size()) return false;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (expected[i].sizes() != found[i].sizes() || !at::allclose(expected[i], found[i])) return false;
    }
    return true;
  } catch (const c10::Error&) {
    return false;  // a size that was recorded as a number
  } catch (const std::runtime_error&) {
    return false;  // the same, from TorchScript's interpreter
  }
}

}  // namespace

torch::jit::Module script_of(const Model& model, const at::Tensor& example, bool& any_batch) {
  const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  torch::jit::Module script = script_with_tensors(*model.module, unit);
  const std::string source = script_source(*model.module);
  if (source.empty()) {
    trace_forward(model, example, script);
  } else {
    script.define(source);
  }
  if (!gives_the_same(model, script, example))
    throw UsageError(str("model ", model.name,
                         ": its TorchScript gives other outputs than the model; its "
                         "forward does what a trace cannot record"));
  any_batch = gives_the_same(model, script, at::cat({example, example.narrow(0, 0, 1)}));
  return script;
}

torch::jit::Module load_script(const std::string& path) {
  try {
    torch::jit::Module script = torch::jit::load(path, c10::kCPU);
    // Files of Python are often saved for inference.
    script.train();
    return script;
  } catch (const std::exception& error) {  // of the archive: c10::Error; of the code in it: ErrorReport
    throw UsageError(str("--model ", path,
                         " is no TorchScript file (torch.jit.save): ", printable(plain_message(error), 400)));
  }
}

}  // namespace rondo
