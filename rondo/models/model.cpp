#include "rondo/models/model.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
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

namespace {

bool lies_in(const std::string& parameter, const std::string& part) {
  return str(".", parameter, ".").find(str(".", part, ".")) != std::string::npos;
}

// Returns the distinct paths of parameters, cut to two names.
std::vector<std::string> outline(const torch::nn::Module& model) {
  std::set<std::string> parts;
  for (const auto& parameter : model.named_parameters()) {
    const std::vector<std::string> names = split(parameter.key(), '.');
    parts.insert(names.size() > 2 ? names[0] + "." + names[1] : names[0]);
  }
  return {parts.begin(), parts.end()};
}

}  // namespace

int freeze(torch::nn::Module& model, const std::vector<std::string>& parts) {
  std::vector<at::Tensor> frozen;
  bool something_left = false;
  std::set<std::string> unseen(parts.begin(), parts.end());
  for (const auto& parameter : model.named_parameters()) {
    bool is_frozen = false;
    for (const std::string& part : parts) {
      if (part.empty() || !lies_in(parameter.key(), part)) continue;
      is_frozen = true;
      unseen.erase(part);
    }
    if (is_frozen) frozen.push_back(parameter.value());
    something_left = something_left || (!is_frozen && parameter.value().requires_grad());
  }
  if (!unseen.empty()) {
    throw UsageError(str("cannot freeze '", *unseen.begin(),
                         "': it contains no parameter of the model; the model's parts are ",
                         join(outline(model), ", ")));
  }
  if (!something_left) throw UsageError(str("freezing ", join(parts, ", "), " would leave nothing to train"));
  for (at::Tensor& parameter : frozen) parameter.requires_grad_(false);
  return static_cast<int>(frozen.size());
}

}  // namespace rondo
