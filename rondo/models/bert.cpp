#include "rondo/models/bert.h"

#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/models/attention.h"
#include "rondo/models/bert_options.h"
#include "rondo/models/built_model.h"
#include "rondo/models/config_reader.h"

namespace rondo {
namespace {

using torch::nn::Module;

// A level of names without a forward of its own.
std::shared_ptr<Module> level(Module& parent, const std::string& name) {
  return parent.register_module(name, std::make_shared<Module>(name));
}

torch::nn::LayerNorm layer_norm(const BertConfig& config) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width}).eps(config.epsilon));
}

at::Tensor activate(const at::Tensor& input, const std::string& activation) {
  if (activation == "relu") return at::relu(input);
  return at::gelu(input, activation == "gelu_new" ? "tanh" : "none");
}

ParallelRules encoder_rules(bool sequence) {
  if (sequence) throw UsageError("bert has no form that divides the sequence; gpt has");
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
