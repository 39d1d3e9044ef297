#include "rondo/models/model.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/models/bert.h"
#include "rondo/models/convnet.h"
#include "rondo/models/gpt_config.h"
#include "rondo/models/mlp.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/sample_dropout.h"

namespace rondo {
namespace {

using nlohmann::json;

// Typed reads of one model's configuration; every error names the model, the key and the value.
class ConfigReader {
 public:
  ConfigReader(const std::string& model, const json& config) : model_(model), config_(config) {}

  std::int64_t positive(const char* key) const { return whole(key, 1); }
  std::int64_t whole(const char* key, std::int64_t least) const {
    const json& value = config_.at(key);
    if (!value.is_number_integer() || value.get<std::int64_t>() < least)
      fail(key, str("a whole number of at least ", least));
    return value.get<std::int64_t>();
  }
  double number(const char* key) const {
    const json& value = config_.at(key);
    if (!value.is_number()) fail(key, "a number");
    return value.get<double>();
  }
  bool boolean(const char* key) const {
    const json& value = config_.at(key);
    if (!value.is_boolean()) fail(key, "true or false");
    return value.get<bool>();
  }
  std::vector<std::int64_t> positives(const char* key) const {
    const json& value = config_.at(key);
    const char* expected = "a list of whole numbers of at least 1, such as [128, 64]";
    if (!value.is_array()) fail(key, expected);
    std::vector<std::int64_t> numbers;
    for (const json& item : value) {
      if (!item.is_number_integer() || item.get<std::int64_t>() < 1) fail(key, expected);
      numbers.push_back(item.get<std::int64_t>());
    }
    return numbers;
  }
  std::string text(const char* key) const {
    const json& value = config_.at(key);
    if (!value.is_string()) fail(key, "a text");
    return value.get<std::string>();
  }
  [[noreturn]] void fail(const char* key, const std::string& expected) const {
    throw UsageError(
        str("model ", model_, ": ", key, " is ", config_.at(key).dump(), ", expected ", expected));
  }

 private:
  const std::string& model_;
  const json& config_;
};

struct Built {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
};

template <class Impl>
Built built(std::shared_ptr<Impl> module) {
  return {module, [module](const at::Tensor& input) { return module->forward(input); }};
}

Built make_mlp(const ConfigReader& config) {
  std::int64_t inputs = 1;
  for (const std::int64_t size : config.positives("input_shape")) inputs *= size;
  return built(std::make_shared<MlpImpl>(MlpConfig{
      .inputs = inputs, .hidden = config.positives("hidden"), .classes = config.positive("classes")}));
}

Built make_convnet(const ConfigReader& config) {
  const std::vector<std::int64_t> shape = config.positives("input_shape");
  if (shape.size() != 3) config.fail("input_shape", "[channels, height, width]: this model needs images");
  return built(std::make_shared<ConvnetImpl>(ConvnetConfig{.channels = shape[0],
                                                           .height = shape[1],
                                                           .width = shape[2],
                                                           .classes = config.positive("classes"),
                                                           .features = config.positives("features"),
                                                           .hidden = config.positive("hidden"),
                                                           .batch_norm = config.boolean("batch_norm"),
                                                           .dropout = config.number("dropout")}));
}

Built make_gpt(const ConfigReader& config) {
  return built(std::make_shared<GptImpl>(GptConfig{.vocabulary = config.positive("vocabulary"),
                                                   .context = config.positive("context"),
                                                   .layers = config.positive("layers"),
                                                   .heads = config.positive("heads"),
                                                   .width = config.positive("width"),
                                                   .dropout = config.number("dropout"),
                                                   .tied_head = config.boolean("tied_head"),
                                                   .experts = config.whole("experts", 0),
                                                   .experts_per_token = config.positive("experts_per_token"),
                                                   .capacity_factor = config.number("capacity_factor"),
                                                   .balance_loss = config.number("balance_loss")}));
}

Built make_bert(const ConfigReader& config) {
  const BertConfig bert{.task = parse_bert_task(config.text("task")),
                        .vocabulary = config.positive("vocabulary"),
                        .positions = config.positive("positions"),
                        .token_types = config.positive("token_types"),
                        .layers = config.positive("layers"),
                        .heads = config.positive("heads"),
                        .width = config.positive("width"),
                        .intermediate = config.positive("intermediate"),
                        .dropout = config.number("dropout"),
                        .attention_dropout = config.number("attention_dropout"),
                        .classifier_dropout = config.number("classifier_dropout"),
                        .activation = config.text("activation"),
                        .epsilon = config.number("epsilon"),
                        .padding = static_cast<std::int64_t>(config.number("padding")),
                        .classes = config.positive("classes")};
  if (bert.task == BertTask::mlm) return built(std::make_shared<BertForMaskedLmImpl>(bert));
  return built(std::make_shared<BertForSequenceClassificationImpl>(bert));
}

struct ModelKind {
  json defaults;
  Built (*make)(const ConfigReader&);
};

// Every model there is. A new one is a header and a source file of its own and one entry here.
const std::map<std::string, ModelKind>& model_kinds() {
  static const std::map<std::string, ModelKind> kinds = {
      {"mlp", {{{"input_shape", {1, 28, 28}}, {"hidden", {128, 64}}, {"classes", 10}}, make_mlp}},
      {"convnet",
       {{{"input_shape", {1, 28, 28}},
         {"features", {16, 32}},
         {"hidden", 64},
         {"classes", 10},
         {"batch_norm", false},
         {"dropout", 0.0}},
        make_convnet}},
      {"bert", {bert_model_config({}), make_bert}},
      // The smallest of the published sizes.
      {"bert-tiny",
       {bert_model_config({.layers = 2, .heads = 2, .width = 128, .intermediate = 512}), make_bert}},
      {"gpt", {gpt_model_config({}), make_gpt}},
      // 25,547,776 parameters: the model of the benchmarks.
      {"gpt-25m", {gpt_model_config({.context = 128, .layers = 8, .heads = 8, .width = 512}), make_gpt}},
      // Small enough to learn something in seconds on two slow cores.
      {"gpt-tiny", {gpt_model_config({.context = 64, .layers = 4, .heads = 4, .width = 128}), make_gpt}},
  };
  return kinds;
}

const ModelKind& find_kind(const std::string& name) {
  const auto found = model_kinds().find(name);
  if (found == model_kinds().end()) {
    throw UsageError(str("unknown model '", name, "', expected one of ", join(model_names(), ", ")));
  }
  return found->second;
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
  for (const auto& [name, kind] : model_kinds()) names.push_back(name);
  return names;
}

json model_config(const std::string& name) { return find_kind(name).defaults; }

Model make_model(const std::string& name, const json& config) {
  const ModelKind& kind = find_kind(name);
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
  Built result = kind.make(ConfigReader(name, complete));
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
