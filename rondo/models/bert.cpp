#include "rondo/models/bert.h"

#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/models/attention.h"

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
    : heads_(config.heads), activation_(config.activation) {
  const auto attention = level(*this, "attention");
  const auto self = level(*attention, "self");
  query_ = self->register_module("query", torch::nn::Linear(config.width, config.width));
  key_ = self->register_module("key", torch::nn::Linear(config.width, config.width));
  value_ = self->register_module("value", torch::nn::Linear(config.width, config.width));
  probability_dropout_ = self->register_module("dropout", SampleDropout(config.attention_dropout));
  const auto attention_output = level(*attention, "output");
  attention_dense_ =
      attention_output->register_module("dense", torch::nn::Linear(config.width, config.width));
  attention_norm_ = attention_output->register_module("LayerNorm", layer_norm(config));
  attention_dropout_ = attention_output->register_module("dropout", SampleDropout(config.dropout));
  const auto intermediate = level(*this, "intermediate");
  intermediate_dense_ =
      intermediate->register_module("dense", torch::nn::Linear(config.width, config.intermediate));
  const auto output = level(*this, "output");
  output_dense_ = output->register_module("dense", torch::nn::Linear(config.intermediate, config.width));
  output_norm_ = output->register_module("LayerNorm", layer_norm(config));
  output_dropout_ = output->register_module("dropout", SampleDropout(config.dropout));
}

at::Tensor BertLayerImpl::attend(const at::Tensor& hidden, const at::Tensor& mask) {
  const std::int64_t samples = hidden.size(0), length = hidden.size(1), width = hidden.size(2);
  const auto by_head = [&](torch::nn::Linear& linear) {
    return linear->forward(hidden).view({samples, length, heads_, width / heads_}).transpose(1, 2);
  };
  const at::Tensor mixed = attention(by_head(query_), by_head(key_), by_head(value_), mask, /*causal=*/false,
                                     probability_dropout_);
  return mixed.transpose(1, 2).reshape({samples, length, width});
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
      torch::nn::Embedding(
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
    pooler_ = level(*this, "pooler")->register_module("dense", torch::nn::Linear(config.width, config.width));
  }
}

at::Tensor BertEncoderImpl::forward(const BertInput& input) {
  const std::int64_t length = input.tokens.size(1);
  if (length > config_.positions) {
    throw UsageError(str("bert: ", length, " tokens in a sample, expected at most ", config_.positions));
  }
  at::Tensor hidden = word_embeddings_->forward(input.tokens) +
                      token_type_embeddings_->forward(input.token_types) +
                      position_embeddings_->weight.narrow(0, 0, length);
  hidden = embedding_dropout_->forward(embedding_norm_->forward(hidden));
  const at::Tensor mask = input.mask.ne(0).unsqueeze(1).unsqueeze(1);
  for (std::size_t i = 0; i < layers_->size(); ++i) {
    hidden = layers_->at<Unit<BertLayer>::Impl>(i).forward(hidden, mask);
  }
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
  classifier_ = register_module("classifier", torch::nn::Linear(config.width, config.classes));
  initialize_weights(*this, config.padding);
}

at::Tensor BertForSequenceClassificationImpl::forward(const at::Tensor& packed) {
  return classifier_->forward(dropout_->forward(bert_->pool(bert_->forward(BertInput::unpack(packed)))));
}

BertForMaskedLmImpl::BertForMaskedLmImpl(const BertConfig& config) : config_(config) {
  check(config);
  bert_ = register_module("bert", BertEncoder(config, /*with_pooler=*/false));
  const auto predictions = level(*level(*this, "cls"), "predictions");
  bias_ = predictions->register_parameter("bias", at::zeros({config.vocabulary}));
  const auto transform = level(*predictions, "transform");
  transform_ = transform->register_module("dense", torch::nn::Linear(config.width, config.width));
  transform_norm_ = transform->register_module("LayerNorm", layer_norm(config));
  initialize_weights(*this, config.padding);
}

at::Tensor BertForMaskedLmImpl::forward(const at::Tensor& packed) {
  const at::Tensor hidden = bert_->forward(BertInput::unpack(packed));
  const at::Tensor transformed =
      transform_norm_->forward(activate(transform_->forward(hidden), config_.activation));
  return at::linear(transformed, bert_->word_embeddings(), bias_);
}

}  // namespace rondo
