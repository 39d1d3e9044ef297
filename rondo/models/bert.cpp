#include "rondo/models/bert.h"

#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/models/attention.h"
#include "rondo/models/bert_options.h"
#include "rondo/models/config_reader.h"
#include "rondo/models/model.h"
#include "rondo/models/model_setup.h"
#include "rondo/nn/gelu.h"

namespace rondo {

BertTask parse_bert_task(const std::string& name) {
  if (name == "classify") return BertTask::classify;
  if (name == "mlm") return BertTask::mlm;
  throw UsageError(str("bert: the task is '", name, "', expected classify or mlm"));
}

void check(const BertConfig& config) {
  const auto positive = [](const char* name, std::int64_t value) { check_positive("bert", name, value); };
  positive("vocabulary", config.vocabulary);
  positive("positions", config.positions);
  positive("token_types", config.token_types);
  check_positive("bert", "layers", config.layers, kMostParts);
  positive("heads", config.heads);
  positive("width", config.width);
  positive("intermediate", config.intermediate);
  positive("classes", config.classes);
  check_heads("bert", config.width, config.heads);
  check_probability("bert", "dropout", config.dropout);
  check_probability("bert", "attention_dropout", config.attention_dropout);
  check_probability("bert", "classifier_dropout", config.classifier_dropout);
  if (config.activation != "gelu" && config.activation != "gelu_new" && config.activation != "relu") {
    throw UsageError(str("bert: activation is '", config.activation, "', expected gelu, gelu_new or relu"));
  }
  if (!(config.epsilon > 0)) throw UsageError(str("bert: epsilon is ", config.epsilon, ", expected above 0"));
  if (config.padding < 0 || config.padding >= config.vocabulary) {
    throw UsageError(
        str("bert: padding is token ", config.padding, ", expected 0 to ", config.vocabulary - 1));
  }
}

BertConfig bert_config_from(const nlohmann::json& config, const std::string& source) {
  const ConfigEntries entries(config, source);
  entries.require("model_type", "bert");
  entries.require("position_embedding_type", "absolute");
  entries.require("is_decoder", false);
  entries.require("add_cross_attention", false);
  entries.require("tie_word_embeddings", true);
  BertConfig result;
  result.vocabulary = entries.integer("vocab_size");
  result.positions = entries.integer("max_position_embeddings");
  result.token_types = entries.integer("type_vocab_size");
  result.layers = entries.integer("num_hidden_layers");
  result.heads = entries.integer("num_attention_heads");
  result.width = entries.integer("hidden_size");
  result.intermediate = entries.integer("intermediate_size");
  result.dropout = entries.number("hidden_dropout_prob", 0.1);
  result.attention_dropout = entries.number("attention_probs_dropout_prob", 0.1);
  result.classifier_dropout = entries.number("classifier_dropout", result.dropout);
  result.activation = entries.text("hidden_act", "gelu");
  result.epsilon = entries.number("layer_norm_eps", 1e-12);
  result.padding = entries.integer_or("pad_token_id", 0);
  try {
    check(result);
  } catch (const UsageError& error) {
    throw DataError(str(source, ": ", error.what()));
  }
  return result;
}

nlohmann::json bert_model_config(const BertConfig& config) {
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

std::string bert_tensor_name(const std::string& name_in_file) {
  std::string name = name_in_file;
  if (name.starts_with("embeddings.") || name.starts_with("encoder.") || name.starts_with("pooler.")) {
    name = "bert." + name;
  }
  const auto replace_ending = [&](std::string_view ending, std::string_view by) {
    if (name.ends_with(ending)) name.replace(name.size() - ending.size(), ending.size(), by);
  };
  replace_ending("LayerNorm.gamma", "LayerNorm.weight");
  replace_ending("LayerNorm.beta", "LayerNorm.bias");
  return name;
}

nlohmann::ordered_json hugging_face_config(const BertConfig& config) {
  const bool classifies = config.task == BertTask::classify;
  nlohmann::ordered_json document = {
      {"model_type", "bert"},
      {"architectures", {classifies ? "BertForSequenceClassification" : "BertForMaskedLM"}},
      {"vocab_size", config.vocabulary},
      {"max_position_embeddings", config.positions},
      {"type_vocab_size", config.token_types},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"hidden_size", config.width},
      {"intermediate_size", config.intermediate},
      {"hidden_dropout_prob", config.dropout},
      {"attention_probs_dropout_prob", config.attention_dropout},
      {"classifier_dropout", config.classifier_dropout},
      {"hidden_act", config.activation},
      {"layer_norm_eps", config.epsilon},
      {"pad_token_id", config.padding}};
  if (!classifies) return document;
  for (std::int64_t i = 0; i < config.classes; ++i)
    document["id2label"][std::to_string(i)] = str("LABEL_", i);
  for (std::int64_t i = 0; i < config.classes; ++i) document["label2id"][str("LABEL_", i)] = i;
  return document;
}

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kDefaultContext = 128;

nlohmann::json read_json_of_init(const fs::path& path) {
  nlohmann::json document = read_json_file(path);
  if (!document.is_object())
    throw DataError(str("--from-pretrained: ", path.string(), ": expected a JSON object"));
  return document;
}

BertConfig bert_config_of_folder(const std::string& folder) {
  const fs::path path = fs::path(folder) / "config.json";
  return bert_config_from(read_json_of_init(path), path.string());
}

// Reads from Hugging Face's tokenizer_config.json whether the vocabulary is lower-case.
bool lower_case_of_folder(const std::string& folder) {
  const fs::path path = fs::path(folder) / "tokenizer_config.json";
  if (!fs::exists(path)) return true;
  const nlohmann::json document = read_json_of_init(path);
  const auto entry = document.find("do_lower_case");
  return entry == document.end() || !entry->is_boolean() || entry->get<bool>();
}

// transformers 5 writes tokenizer.json, earlier versions vocab.txt too.
std::string vocabulary_of_folder(const std::string& folder) {
  const fs::path text = fs::path(folder) / "vocab.txt", json = fs::path(folder) / "tokenizer.json";
  return (!fs::exists(text) && fs::exists(json) ? json : text).string();
}

nlohmann::json bert_settings(const BertOptions& options) {
  nlohmann::json settings = transformer_settings(options);
  if (options.dropout) settings["attention_dropout"] = settings["classifier_dropout"] = *options.dropout;
  return settings;
}

class BertSetup final : public ModelSetup {
 public:
  explicit BertSetup(const BertOptions& options)
      : ModelSetup(bert_settings(options)),
        options_(options),
        task_(options.task.empty() ? "classify" : options.task) {}

  DataNeeds data_needs(const nlohmann::json& /*config*/) const override {
    DataNeeds needs{.kind = task_ == "mlm" ? "masked_text" : "labelled_text",
                    .kind_by = "--task " + task_,
                    .context = options_.context.value_or(kDefaultContext),
                    .vocabulary_file = options_.vocabulary,
                    .lower_case = !options_.cased};
    if (options_.init.empty()) return needs;
    if (!fs::is_directory(options_.init)) {
      throw UsageError(str("--from-pretrained ", options_.init,
                           ": expected a folder with config.json, vocab.txt and model.safetensors"));
    }
    // A bert may have more positions than a sample has tokens.
    const std::int64_t positions = bert_config_of_folder(options_.init).positions;
    if (options_.context && *options_.context > positions) {
      throw UsageError(str("--seq-len ", *options_.context, ": the model of --from-pretrained has ",
                           positions, " positions"));
    }
    needs.context = std::min(*needs.context, positions);
    if (options_.vocabulary.empty()) needs.vocabulary_file = vocabulary_of_folder(options_.init);
    needs.lower_case = !options_.cased && lower_case_of_folder(options_.init);
    return needs;
  }

  nlohmann::json config(const nlohmann::json& of_data, const nlohmann::json& settings,
                        const std::string& /*source*/) const override {
    nlohmann::json config = of_data;
    if (!options_.init.empty()) {
      const BertConfig pretrained = bert_config_of_folder(options_.init);
      const auto vocabulary = of_data.at("vocabulary").get<std::int64_t>();
      if (vocabulary > pretrained.vocabulary) {
        throw UsageError(str("the vocabulary has ", vocabulary, " tokens, the model of --from-pretrained ",
                             options_.init, " only ", pretrained.vocabulary));
      }
      nlohmann::json whole = bert_model_config(pretrained);
      if (config.contains("classes")) whole["classes"] = config["classes"];
      config = std::move(whole);
    }
    config["task"] = task_;
    config.update(settings);
    return config;
  }

  std::string init() const override { return options_.init; }

  PretrainedNames pretrained_names() const override {
    PretrainedNames names;
    names.in_model = bert_tensor_name;
    names.optional_parts = {"classifier.", "cls.", "bert.pooler."};
    names.shared = {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
                    {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
    return names;
  }

 private:
  BertOptions options_;
  std::string task_;
};

}  // namespace

nlohmann::json BertFamily::defaults(const std::string& name) {
  static const std::map<std::string, BertConfig> sizes = {
      {"bert", {}}, {"bert-tiny", {.layers = 2, .heads = 2, .width = 128, .intermediate = 512}}};
  return bert_model_config(sizes.at(name));
}

std::unique_ptr<ModelSetup> BertFamily::setup(const Options& options) {
  return std::make_unique<BertSetup>(options);
}

namespace {

using torch::nn::Module;

// Registers a level of names without a forward of its own.
std::shared_ptr<Module> level(Module& parent, const std::string& name) {
  return parent.register_module(name, std::make_shared<Module>(name));
}

torch::nn::LayerNorm layer_norm(const BertConfig& config) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width}).eps(config.epsilon));
}

at::Tensor activate(const at::Tensor& input, const std::string& activation) {
  if (activation == "relu") return at::relu(input);
  return activation == "gelu_new" ? nn::gelu_tanh(input) : at::gelu(input);
}

ParallelRules encoder_rules(bool sequence) {
  if (sequence) throw UsageError("bert cannot be divided along the sequence; gpt can");
  return {.rules = {{"bert.embeddings.word_embeddings", ParallelStyle::vocabulary},
                    {"bert.encoder.layer.*", ParallelStyle::heads}}};
}

void initialize_weights(Module& model, std::int64_t padding) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model.named_parameters()) {
    const std::string& name = parameter.key();
    at::Tensor& value = parameter.value();
    if (value.dim() > 1) {
      value.normal_(0.0, 0.02);
      if (name.ends_with("word_embeddings.weight")) value[padding].zero_();
    } else if (name.ends_with("bias")) {
      value.zero_();
    }
  }
}

}  // namespace

BertInput BertInput::unpack(const at::Tensor& packed) {
  if (packed.dim() != 3 || packed.size(1) != 3 || packed.scalar_type() != at::kLong) {
    throw UsageError(str("bert: input of shape [", join(packed.sizes(), ", "), "] and type ",
                         c10::toString(packed.scalar_type()),
                         ", expected int64 [samples, 3, length]: tokens, token types and mask"));
  }
  return {packed.select(1, 0), packed.select(1, 1), packed.select(1, 2)};
}

BertLayerImpl::BertLayerImpl(const BertConfig& config)
    : heads_(config.heads), head_size_(config.width / config.heads), activation_(config.activation) {
  const auto attention = level(*this, "attention");
  const auto self = level(*attention, "self");
  query_ = self->register_module("query", ParallelLinear(config.width, config.width));
  key_ = self->register_module("key", ParallelLinear(config.width, config.width));
  value_ = self->register_module("value", ParallelLinear(config.width, config.width));
  probability_dropout_ = self->register_module("dropout", SampleDropout(config.attention_dropout));
  const auto attention_output = level(*attention, "output");
  attention_dense_ = attention_output->register_module("dense", ParallelLinear(config.width, config.width));
  attention_norm_ = attention_output->register_module("LayerNorm", layer_norm(config));
  attention_dropout_ = attention_output->register_module("dropout", SampleDropout(config.dropout));
  const auto intermediate = level(*this, "intermediate");
  intermediate_dense_ =
      intermediate->register_module("dense", ParallelLinear(config.width, config.intermediate));
  const auto output = level(*this, "output");
  output_dense_ = output->register_module("dense", ParallelLinear(config.intermediate, config.width));
  output_norm_ = output->register_module("LayerNorm", layer_norm(config));
  output_dropout_ = output->register_module("dropout", SampleDropout(config.dropout));
}

at::Tensor BertLayerImpl::attend(const at::Tensor& hidden, const at::Tensor& mask) {
  const std::int64_t samples = hidden.size(0), length = hidden.size(1);
  const auto by_head = [&](ParallelLinear& linear) {
    const at::Tensor projected = linear->forward(hidden);
    return projected.view({samples, length, projected.size(2) / head_size_, head_size_}).transpose(1, 2);
  };
  const at::Tensor mixed = attention(by_head(query_), by_head(key_), by_head(value_), mask, /*causal=*/false,
                                     probability_dropout_);
  return mixed.transpose(1, 2).flatten(2);
}

void BertLayerImpl::divide(ParallelStyle style, Division& division, const std::string& path) {
  if (style != ParallelStyle::heads)
    throw UsageError(
        str("'", path, "' is a layer of bert, which is divided by heads, not by ", to_text(style)));
  division.share(heads_, path, "heads");
  for (ParallelLinear* const linear : {&query_, &key_, &value_})
    (*linear)->divide(ParallelStyle::column, division, path + ".attention.self");
  attention_dense_->divide(ParallelStyle::row, division, path + ".attention.output.dense");
  probability_dropout_->divide(ParallelStyle::heads, division, path + ".attention.self.dropout");
  intermediate_dense_->divide(ParallelStyle::column, division, path + ".intermediate.dense");
  output_dense_->divide(ParallelStyle::row, division, path + ".output.dense");
}

at::Tensor BertLayerImpl::forward(const at::Tensor& hidden, const at::Tensor& mask) {
  const at::Tensor attended = attention_norm_->forward(
      attention_dropout_->forward(attention_dense_->forward(attend(hidden, mask))) + hidden);
  const at::Tensor inside = activate(intermediate_dense_->forward(attended), activation_);
  return output_norm_->forward(output_dropout_->forward(output_dense_->forward(inside)) + attended);
}

BertEncoderImpl::BertEncoderImpl(const BertConfig& config, bool with_pooler) : config_(config) {
  const auto embeddings = level(*this, "embeddings");
  word_embeddings_ = embeddings->register_module(
      "word_embeddings",
      ParallelEmbedding(
          torch::nn::EmbeddingOptions(config.vocabulary, config.width).padding_idx(config.padding)));
  position_embeddings_ = embeddings->register_module("position_embeddings",
                                                     torch::nn::Embedding(config.positions, config.width));
  token_type_embeddings_ = embeddings->register_module(
      "token_type_embeddings", torch::nn::Embedding(config.token_types, config.width));
  embedding_norm_ = embeddings->register_module("LayerNorm", layer_norm(config));
  embedding_dropout_ = embeddings->register_module("dropout", SampleDropout(config.dropout));
  layers_ = level(*this, "encoder")->register_module("layer", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < config.layers; ++i) layers_->push_back(Unit<BertLayer>(config));
  if (with_pooler) {
    pooler_ = level(*this, "pooler")->register_module("dense", nn::Linear(config.width, config.width));
  }
}

std::pair<at::Tensor, at::Tensor> BertEncoderImpl::embed(const BertInput& input) {
  const std::int64_t length = input.tokens.size(1);
  if (length > config_.positions) {
    throw UsageError(str("bert: ", length, " tokens in a sample, expected at most ", config_.positions));
  }
  at::Tensor hidden = word_embeddings_->forward(input.tokens) +
                      token_type_embeddings_->forward(input.token_types) +
                      position_embeddings_->weight.narrow(0, 0, length);
  hidden = embedding_dropout_->forward(embedding_norm_->forward(hidden));
  return {hidden, input.mask.ne(0).unsqueeze(1).unsqueeze(1)};
}

std::vector<ModelLayer> BertEncoderImpl::layers() {
  std::vector<ModelLayer> layers = {
      make_layer("bert.embeddings",
                 {word_embeddings_.ptr(), position_embeddings_.ptr(), token_type_embeddings_.ptr(),
                  embedding_norm_.ptr(), embedding_dropout_.ptr()},
                 [this](const at::Tensor& packed) {
                   auto [hidden, mask] = embed(BertInput::unpack(packed));
                   return Tensors{hidden, mask};
                 })};
  for (std::size_t i = 0; i < layers_->size(); ++i) {
    const auto layer = layers_->ptr<Unit<BertLayer>::Impl>(i);
    layers.push_back(make_layer(str("bert.encoder.layer.", i), {layer},
                                [layer](const at::Tensor& hidden, const at::Tensor& mask) {
                                  return Tensors{layer->forward(hidden, mask), mask};
                                }));
  }
  return layers;
}

at::Tensor BertEncoderImpl::forward(const BertInput& input) {
  auto [hidden, mask] = embed(input);
  for (const auto& layer : *layers_) hidden = layer->as<Unit<BertLayer>>()->forward(hidden, mask);
  return hidden;
}

at::Tensor BertEncoderImpl::pool(const at::Tensor& hidden) {
  return at::tanh(pooler_->forward(hidden.select(1, 0)));
}

BertForSequenceClassificationImpl::BertForSequenceClassificationImpl(const BertConfig& config)
    : config_(config) {
  check(config);
  bert_ = register_module("bert", BertEncoder(config, /*with_pooler=*/true));
  dropout_ = register_module("dropout", SampleDropout(config.classifier_dropout));
  classifier_ = register_module("classifier", nn::Linear(config.width, config.classes));
  initialize_weights(*this, config.padding);
}

ParallelRules BertForSequenceClassificationImpl::parallel_rules(bool sequence) const {
  return encoder_rules(sequence);
}

at::Tensor BertForSequenceClassificationImpl::forward(const at::Tensor& packed) {
  return classify(bert_->forward(BertInput::unpack(packed)));
}

at::Tensor BertForSequenceClassificationImpl::classify(const at::Tensor& hidden) {
  return classifier_->forward(dropout_->forward(bert_->pool(hidden)));
}

std::vector<ModelLayer> BertForSequenceClassificationImpl::layers() {
  std::vector<ModelLayer> layers = bert_->layers();
  layers.push_back(
      make_layer("head", {bert_->pooler().ptr(), dropout_.ptr(), classifier_.ptr()},
                 [this](const at::Tensor& hidden, const at::Tensor&) { return classify(hidden); }));
  return layers;
}

BertForMaskedLmImpl::BertForMaskedLmImpl(const BertConfig& config) : config_(config) {
  check(config);
  bert_ = register_module("bert", BertEncoder(config, /*with_pooler=*/false));
  const auto predictions = level(*level(*this, "cls"), "predictions");
  bias_ = predictions->register_parameter("bias", at::zeros({config.vocabulary}));
  const auto transform = level(*predictions, "transform");
  transform_ = transform->register_module("dense", nn::Linear(config.width, config.width));
  transform_norm_ = transform->register_module("LayerNorm", layer_norm(config));
  initialize_weights(*this, config.padding);
}

at::Tensor BertForMaskedLmImpl::forward(const at::Tensor& packed) {
  return predict(bert_->forward(BertInput::unpack(packed)));
}

std::vector<ModelLayer> BertForMaskedLmImpl::layers() {
  std::vector<ModelLayer> layers = bert_->layers();
  layers.push_back(make_layer("head", {transform_.ptr(), transform_norm_.ptr()},
                              [this](const at::Tensor& hidden, const at::Tensor&) { return predict(hidden); },
                              {bert_->word_embeddings(), bias_}));
  return layers;
}

at::Tensor BertForMaskedLmImpl::predict(const at::Tensor& hidden) {
  const at::Tensor transformed =
      transform_norm_->forward(activate(transform_->forward(hidden), config_.activation));
  return bert_->logits(transformed, bias_);
}

ParallelRules BertForMaskedLmImpl::parallel_rules(bool sequence) const {
  ParallelRules rules = encoder_rules(sequence);
  rules.rules.push_back({"cls.predictions.bias", ParallelStyle::vocabulary});
  rules.divided_outputs = true;
  return rules;
}

BuiltModel BertFamily::make(const ConfigReader& config) {
  const BertConfig bert{.task = parse_bert_task(config.text("task")),
                        .vocabulary = config.positive("vocabulary"),
                        .positions = config.positive("positions"),
                        .token_types = config.positive("token_types"),
                        .layers = config.positive("layers", kMostParts),
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

}  // namespace rondo
