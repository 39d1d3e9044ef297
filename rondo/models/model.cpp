#include "rondo/models/model.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/models/built_model.h"
#include "rondo/models/config_reader.h"
#include "rondo/models/model_families.h"
#include "rondo/models/model_options.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/sample_dropout.h"

namespace rondo {
namespace {

using nlohmann::json;

struct ModelKind {
  json defaults;
  BuiltModel (*make)(const ConfigReader&);
};

ModelKind find_kind(const std::string& name) {
  std::optional<ModelKind> found;
  for_each_model_family([&](auto family) {
    using Family = decltype(family);
    if (find_declaration(Family::declarations(), name) != nullptr)
      found = ModelKind{Family::defaults(name), Family::make};
  });
  if (!found) {
    throw UsageError(str("unknown model '", name, "', expected one of ", join(model_names(), ", ")));
  }
  return *found;
}

}  // namespace

json bert_model_config(const BertConfig& config) {
  return {{"task", config.task == BertTask::mlm ? "mlm" : "classify"},
          {"vocabulary", config.vocabulary},
          {"positions", config.positions},
          {"token_types", config.token_types},
          {"layers", config.layers},
          {"heads", config.heads},
          {"width", config.width},
          {"intermediate", config.intermediate},
          {"dropout", config.dropout},
          {"attention_dropout", config.attention_dropout},
          {"classifier_dropout", config.classifier_dropout},
          {"activation", config.activation},
          {"epsilon", config.epsilon},
          {"padding", config.padding},
          {"classes", config.classes}};
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Declaration& model : declared_models()) names.push_back(model.name);
  return names;
}

json model_config(const std::string& name) { return find_kind(name).defaults; }

Model make_model(const std::string& name, const json& config) {
  const ModelKind kind = find_kind(name);
  if (!config.is_object()) {
    throw UsageError(
        str("model ", name, ": the configuration is ", config.dump(), ", expected a JSON object"));
  }
  json complete = kind.defaults;
  for (const auto& [key, value] : config.items()) {
    if (!complete.contains(key)) {
      std::vector<std::string> known;
      for (const auto& [allowed, unused] : complete.items()) known.push_back(allowed);
      throw UsageError(str("model ", name, " has no setting '", key, "'; it has ", join(known, ", ")));
    }
    complete[key] = value;
  }
  BuiltModel result = kind.make(ConfigReader(name, complete));
  name_sample_dropouts(*result.module);
  return {name, std::move(complete), std::move(result.module), std::move(result.forward)};
}

std::int64_t count_parameters(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : distinct_parameters(module)) {
    if (parameter.requires_grad()) count += parameter.numel();
  }
  return count;
}

}  // namespace rondo
