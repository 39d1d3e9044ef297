#pragma once

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <string>

#include "rondo/models/bert_config.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/unit.h"

namespace rondo {

// What BERT computes on: int64 [samples, length] each.
struct BertInput {
  at::Tensor tokens;
  at::Tensor token_types;  // 0 in the first text, 1 in the second
  at::Tensor mask;         // 1 where a token is, 0 where the text has been filled up

  // The three as one tensor [samples, 3, length], in this order: what data sets give and Model::forward
  // takes.
  static BertInput unpack(const at::Tensor& packed);
};

// One post-layer-norm transformer layer: h = norm(x + attention(x)), norm(h + mlp(h)). Each is a unit.
class BertLayerImpl : public torch::nn::Module {
 public:
  explicit BertLayerImpl(const BertConfig& config);
  // `hidden` [samples, length, width]; `mask` bool [samples, 1, 1, length], true where attention may go.
  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& mask);

 private:
  at::Tensor attend(const at::Tensor& hidden, const at::Tensor& mask);

  std::int64_t heads_;
  std::string activation_;
  torch::nn::Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, attention_dense_{nullptr};
  torch::nn::Linear intermediate_dense_{nullptr}, output_dense_{nullptr};
  torch::nn::LayerNorm attention_norm_{nullptr}, output_norm_{nullptr};
  SampleDropout probability_dropout_{nullptr}, attention_dropout_{nullptr}, output_dropout_{nullptr};
};
TORCH_MODULE(BertLayer);

// Embeddings and layers, common to all tasks: input to hidden states [samples, length, width].
class BertEncoderImpl : public torch::nn::Module {
 public:
  BertEncoderImpl(const BertConfig& config, bool with_pooler);
  at::Tensor forward(const BertInput& input);
  // tanh of a linear function of the first token's state: [samples, width].
  at::Tensor pool(const at::Tensor& hidden);
  // [vocabulary, width]
  const at::Tensor& word_embeddings() const { return word_embeddings_->weight; }

 private:
  BertConfig config_;
  torch::nn::Embedding word_embeddings_{nullptr}, position_embeddings_{nullptr},
      token_type_embeddings_{nullptr};
  torch::nn::LayerNorm embedding_norm_{nullptr};
  SampleDropout embedding_dropout_{nullptr};
  torch::nn::ModuleList layers_{nullptr};
  torch::nn::Linear pooler_{nullptr};
};
TORCH_MODULE(BertEncoder);

// Parameter names and shapes are those of Hugging Face's BertForSequenceClassification and BertForMaskedLM,
// and so are logits for the same weights. Weights start as theirs do: normal(0, 0.02), biases 0, layer norms
// the identity, the embedding of the padding token 0.

// A class for each text: packed input (BertInput) to logits [samples, classes].
class BertForSequenceClassificationImpl : public torch::nn::Module {
 public:
  // Throws UsageError for values that cannot be.
  explicit BertForSequenceClassificationImpl(const BertConfig& config);
  at::Tensor forward(const at::Tensor& packed);
  const BertConfig& config() const { return config_; }

 private:
  BertConfig config_;
  BertEncoder bert_{nullptr};
  SampleDropout dropout_{nullptr};
  torch::nn::Linear classifier_{nullptr};
};
TORCH_MODULE(BertForSequenceClassification);

// A token for each position: packed input to logits [samples, length, vocabulary]. The output layer shares
// the word embeddings' weight; "cls.predictions.decoder.weight" and ".bias" of files are names of
// "bert.embeddings.word_embeddings.weight" and "cls.predictions.bias".
class BertForMaskedLmImpl : public torch::nn::Module {
 public:
  explicit BertForMaskedLmImpl(const BertConfig& config);
  at::Tensor forward(const at::Tensor& packed);
  const BertConfig& config() const { return config_; }

 private:
  BertConfig config_;
  BertEncoder bert_{nullptr};
  torch::nn::Linear transform_{nullptr};
  torch::nn::LayerNorm transform_norm_{nullptr};
  at::Tensor bias_;
};
TORCH_MODULE(BertForMaskedLm);

}  // namespace rondo
