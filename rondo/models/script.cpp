#include "rondo/models/script.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <map>

#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/models/bert.h"
#include "rondo/models/convnet.h"
#include "rondo/models/gpt.h"
#include "rondo/models/mlp.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {
namespace {

// The source text of a forward function.
class ScriptText {
 public:
  template <class... Parts>
  ScriptText& line(const Parts&... parts) {
    text_ += str("  ", parts..., "\n");
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_ = "def forward(self, x):\n";
};

// Returns the expression for "transformer.h.0.weight"; parts of a path may be numbers or keywords.
std::string tensor_at(const std::string& path) {
  std::string expression = "self";
  for (const std::string& part : split(path, '.'))
    expression = str("getattr(", expression, ", \"", part, "\")");
  return expression;
}

std::string exact(double value) {
  TextStream text;
  text.precision(17);
  text << value;
  const std::string digits = text.str();
  return digits.find_first_of(".e") == std::string::npos ? digits + ".0" : digits;
}

std::string script_linear(const std::string& input, const std::string& layer, bool bias = true) {
  return str("torch.linear(", input, ", ", tensor_at(layer + ".weight"),
             bias ? ", " + tensor_at(layer + ".bias") : "", ")");
}

std::string script_norm(const std::string& input, const std::string& layer, std::int64_t width,
                        double epsilon) {
  return str("torch.layer_norm(", input, ", [", width, "], ", tensor_at(layer + ".weight"), ", ",
             tensor_at(layer + ".bias"), ", ", exact(epsilon), ")");
}

std::string script_embedding(const std::string& table, const std::string& numbers) {
  return str("torch.embedding(", tensor_at(table + ".weight"), ", ", numbers, ")");
}

std::string mlp_source(const MlpImpl& mlp) {
  ScriptText script;
  script.line("x = torch.reshape(x, [x.size(0), ", mlp.config().inputs, "])");
  for (std::size_t i = 0; i <= mlp.config().hidden.size(); ++i) {
    script.line("x = ", script_linear("x", str("layers.", i)));
    if (i < mlp.config().hidden.size()) script.line("x = torch.relu(x)");
  }
  script.line("return x");
  return script.text();
}

std::string convnet_source(const ConvnetImpl& net) {
  const ConvnetConfig& config = net.config();
  ScriptText script;
  std::size_t layer = 0;
  std::int64_t channels = config.channels, height = config.height, width = config.width;
  for (const std::int64_t features : config.features) {
    const std::string convolution = str("features.", layer++);
    script.line("x = torch.conv2d(x, ", tensor_at(convolution + ".weight"), ", ",
                config.batch_norm ? "None" : tensor_at(convolution + ".bias"), ", [1, 1], [1, 1])");
    if (config.batch_norm) {
      const std::string norm = str("features.", layer++);
      script.line("x = torch.batch_norm(x, ", tensor_at(norm + ".weight"), ", ", tensor_at(norm + ".bias"),
                  ", ", tensor_at(norm + ".running_mean"), ", ", tensor_at(norm + ".running_var"),
                  ", False, 0.1, 1e-05, True)");
    }
    layer += 2;  // ReLU and pooling
    script.line("x = torch.max_pool2d(torch.relu(x), [2, 2])");
    channels = features;
    height /= 2;
    width /= 2;
  }
  script.line("x = torch.reshape(x, [x.size(0), ", channels * height * width, "])");
  script.line("x = torch.relu(", script_linear("x", "classifier.0"), ")");
  script.line("return ", script_linear("x", "classifier.2"));
  return script.text();
}

// Appends attention with `heads` heads over variables q, k and v, [samples, length, width] each, into
// variable m.
void add_attention(ScriptText& script, std::int64_t heads, std::int64_t width, const char* mask,
                   const char* causal) {
  for (const char* part : {"q", "k", "v"})
    script.line(part, " = torch.transpose(torch.reshape(", part, ", [n, t, ", heads, ", ", width / heads,
                "]), 1, 2)");
  script.line("m = torch.scaled_dot_product_attention(q, k, v, ", mask, ", 0.0, ", causal, ")");
  script.line("m = torch.reshape(torch.transpose(m, 1, 2), [n, t, ", width, "])");
}

constexpr double kLayerNormEpsilon = 1e-5;  // torch::nn::LayerNorm's default

std::string gpt_source(const GptImpl& gpt) {
  const GptConfig& config = gpt.config();
  ScriptText script;
  script.line("n = x.size(0)").line("t = x.size(1)");
  script.line("x = ", script_embedding("transformer.wte", "x"), " + torch.narrow(",
              tensor_at("transformer.wpe.weight"), ", 0, 0, t)");
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string block = str("transformer.h.", i, ".");
    script.line("h = ", script_norm("x", block + "ln_1", config.width, kLayerNormEpsilon));
    script.line("h = ", script_linear("h", block + "attn.c_attn"));
    for (const auto& [part, place] : {std::pair{"q", 0}, {"k", 1}, {"v", 2}})
      script.line(part, " = torch.narrow(h, 2, ", place * config.width, ", ", config.width, ")");
    add_attention(script, config.heads, config.width, "None", "True");
    script.line("x = x + ", script_linear("m", block + "attn.c_proj"));
    script.line("h = ", script_norm("x", block + "ln_2", config.width, kLayerNormEpsilon));
    script.line("h = torch.gelu(", script_linear("h", block + "mlp.c_fc"), ", approximate=\"tanh\")");
    script.line("x = x + ", script_linear("h", block + "mlp.c_proj"));
  }
  script.line("x = ", script_norm("x", "transformer.ln_f", config.width, kLayerNormEpsilon));
  script.line("return ", config.tied_head ? str("torch.linear(x, ", tensor_at("transformer.wte.weight"), ")")
                                          : script_linear("x", "lm_head", /*bias=*/false));
  return script.text();
}

std::string activated(const std::string& value, const std::string& activation) {
  if (activation == "relu") return str("torch.relu(", value, ")");
  return str("torch.gelu(", value, ", approximate=\"", activation == "gelu_new" ? "tanh" : "none", "\")");
}

// Returns the encoder's source: it maps packed input x [samples, 3, length] to hidden states in variable x.
ScriptText bert_encoder(const BertConfig& config) {
  ScriptText script;
  script.line("n = x.size(0)").line("t = x.size(2)");
  script.line("mask = torch.unsqueeze(torch.unsqueeze(torch.ne(torch.select(x, 1, 2), 0), 1), 1)");
  const std::string embeddings = "bert.embeddings.";
  script.line("x = ", script_embedding(embeddings + "word_embeddings", "torch.select(x, 1, 0)"), " + ",
              script_embedding(embeddings + "token_type_embeddings", "torch.select(x, 1, 1)"),
              " + torch.narrow(", tensor_at(embeddings + "position_embeddings.weight"), ", 0, 0, t)");
  script.line("x = ", script_norm("x", embeddings + "LayerNorm", config.width, config.epsilon));
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = str("bert.encoder.layer.", i, ".");
    for (const auto& [part, name] : {std::pair{"q", "query"}, {"k", "key"}, {"v", "value"}})
      script.line(part, " = ", script_linear("x", layer + "attention.self." + name));
    add_attention(script, config.heads, config.width, "mask", "False");
    script.line("x = ", script_norm(script_linear("m", layer + "attention.output.dense") + " + x",
                                    layer + "attention.output.LayerNorm", config.width, config.epsilon));
    script.line("h = ", activated(script_linear("x", layer + "intermediate.dense"), config.activation));
    script.line("x = ", script_norm(script_linear("h", layer + "output.dense") + " + x",
                                    layer + "output.LayerNorm", config.width, config.epsilon));
  }
  return script;
}

std::string bert_classifier_source(const BertForSequenceClassificationImpl& bert) {
  ScriptText script = bert_encoder(bert.config());
  script.line("x = torch.tanh(", script_linear("torch.select(x, 1, 0)", "bert.pooler.dense"), ")");
  script.line("return ", script_linear("x", "classifier"));
  return script.text();
}

std::string bert_mlm_source(const BertForMaskedLmImpl& bert) {
  const BertConfig& config = bert.config();
  ScriptText script = bert_encoder(config);
  const std::string transform = "cls.predictions.transform.";
  script.line("x = ", script_norm(activated(script_linear("x", transform + "dense"), config.activation),
                                  transform + "LayerNorm", config.width, config.epsilon));
  script.line("return torch.linear(x, ", tensor_at("bert.embeddings.word_embeddings.weight"), ", ",
              tensor_at("cls.predictions.bias"), ")");
  return script.text();
}

// Returns TorchScript source of a built-in model's `forward` in evaluation mode, for a module with its
// parameters and buffers under their names; empty for any other model.
std::string script_source(const torch::nn::Module& module) {
  if (const auto* mlp = dynamic_cast<const MlpImpl*>(&module)) return mlp_source(*mlp);
  if (const auto* net = dynamic_cast<const ConvnetImpl*>(&module)) return convnet_source(*net);
  if (const auto* gpt = dynamic_cast<const GptImpl*>(&module)) return gpt_source(*gpt);
  if (const auto* bert = dynamic_cast<const BertForSequenceClassificationImpl*>(&module))
    return bert_classifier_source(*bert);
  if (const auto* bert = dynamic_cast<const BertForMaskedLmImpl*>(&module)) return bert_mlm_source(*bert);
  return "";
}

using CompilationUnit = std::shared_ptr<torch::jit::CompilationUnit>;

torch::jit::Module empty_script(const CompilationUnit& unit) {
  torch::jit::Module module(c10::QualifiedName("__torch__.rondo.Model"), unit, /*shouldMangle=*/true);
  module.register_attribute("training", c10::BoolType::get(), false);
  return module;
}

// TorchScript modules get their type on creation, so children are created before their parents.
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

// Runs the model in evaluation mode without gradients, and restores the former mode.
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
      if (expected[i].sizes() != found[i].sizes()) return false;
      // Values near zero differ by rounding: scripts have at::gelu where models have nn::gelu_tanh.
      if (!at::allclose(expected[i], found[i], /*rtol=*/1e-5, /*atol=*/1e-5)) return false;
    }
    return true;
  } catch (const c10::Error&) {
    return false;  // a size was recorded as a constant
  } catch (const std::runtime_error&) {
    return false;  // likewise, from TorchScript's interpreter
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
    // Files of Python are often saved in evaluation mode.
    script.train();
    return script;
  } catch (const std::exception& error) {  // c10::Error for the archive, ErrorReport for its code
    throw UsageError(str("--model ", path,
                         " is no TorchScript file (torch.jit.save): ", printable(plain_message(error), 400)));
  }
}

}  // namespace rondo
