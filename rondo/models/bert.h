#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "rondo/nn/layers.h"
#include "rondo/nn/linear.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/tensor_parallel/parallelize.h"
#include "rondo/nn/unit.h"

namespace rondo {

// What a BERT is used for: the layers after the encoder.
enum class BertTask {
  classify,  // a class for the whole text
  mlm,       // the token behind each [MASK]: masked language modelling
};

// Throws UsageError unless `name` is "classify" or "mlm".
BertTask parse_bert_task(const std::string& name);

// BERT base by default (Devlin et al., "BERT: pre-training of deep bidirectional transformers for language
// understanding", 2019).
struct BertConfig {
  BertTask task = BertTask::classify;  // which layers stand after the encoder
  std::int64_t vocabulary = 30522;     // number of tokens
  std::int64_t positions = 512;        // longest sequence
  std::int64_t token_types = 2;        // texts in one sample
  std::int64_t layers = 12;            // of the encoder
  std::int64_t heads = 12;             // of attention, in each layer
  std::int64_t width = 768;            // of hidden states; heads divide it
  std::int64_t intermediate = 3072;    // width inside a layer's two-layer perceptron
  double dropout = 0.1;                // of embeddings and of each layer's two outputs
  double attention_dropout = 0.1;      // of attention probabilities
  double classifier_dropout = 0.1;     // before the classifier
  std::string activation = "gelu";     // gelu, gelu_new (by tanh) or relu
  double epsilon = 1e-12;              // of layer norms
  std::int64_t padding = 0;            // the token whose embedding is not trained
  std::int64_t classes = 2;            // of classify
};

// Throws UsageError naming the value that cannot be.
void check(const BertConfig& config);

// The architecture that a Hugging Face config.json describes; `task` and `classes` are not taken from it.
// Throws DataError naming the entry that is missing or that this BERT cannot do (another model type, relative
// positions, a decoder); `source` names the file in it.
BertConfig bert_config_from(const nlohmann::json& config, const std::string& source);

// The config.json with which Hugging Face's transformers open the model.
nlohmann::ordered_json hugging_face_config(const BertConfig& config);

// `config` as make_model("bert", ...) takes it.
nlohmann::json bert_model_config(const BertConfig& config);
// The name in this model (and in Hugging Face's) of a tensor in a file: old files call the parameters of
// layer norms gamma and beta, and files of the bare encoder leave out "bert.".
std::string bert_tensor_name(const std::string& name_in_file);

// What BERT computes on: int64 [samples, length] each.
struct BertInput {
  at::Tensor tokens;       // numbers of the vocabulary
  at::Tensor token_types;  // 0 in the first text, 1 in the second
  at::Tensor mask;         // 1 where a token is, 0 where the text has been filled up

  // The three as one tensor [samples, 3, length], in this order: what data sets give and Model::forward
  // takes.
  static BertInput unpack(const at::Tensor& packed);
};

// One post-layer-norm transformer layer: h = norm(x + attention(x)), norm(h + mlp(h)). Each is a unit.
class BertLayerImpl : public torch::nn::Module, public ParallelLayer {
 public:
  // Throws UsageError for values that cannot be.
  explicit BertLayerImpl(const BertConfig& config);
  // `hidden` [samples, length, width]; `mask` bool [samples, 1, 1, length], true where attention may go.
  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& mask);
  // Among ranks by heads, and by the inner width of its perceptron.
  void divide(ParallelStyle style, Division& division, const std::string& path) override;

 private:
  at::Tensor attend(const at::Tensor& hidden, const at::Tensor& mask);

  std::int64_t heads_, head_size_;
  std::string activation_;
  ParallelLinear query_{nullptr}, key_{nullptr}, value_{nullptr}, attention_dense_{nullptr};
  ParallelLinear intermediate_dense_{nullptr}, output_dense_{nullptr};
  torch::nn::LayerNorm attention_norm_{nullptr}, output_norm_{nullptr};
  SampleDropout probability_dropout_{nullptr}, attention_dropout_{nullptr}, output_dropout_{nullptr};
};
TORCH_MODULE(BertLayer);

// Embeddings and layers, common to all tasks: input to hidden states [samples, length, width].
class BertEncoderImpl : public torch::nn::Module {
 public:
  // `with_pooler`: it has the layer that pool() needs.
  BertEncoderImpl(const BertConfig& config, bool with_pooler);
  // [samples, length, width]; throws UsageError for more positions than the model has.
  at::Tensor forward(const BertInput& input);
  // "bert.embeddings" and "bert.encoder.layer.0", ...: hidden states and the mask from packed input.
  std::vector<ModelLayer> layers();
  // tanh of a linear function of the first token's state: [samples, width].
  at::Tensor pool(const at::Tensor& hidden);
  // [vocabulary, width]
  const at::Tensor& word_embeddings() const { return word_embeddings_->weight; }
  const nn::Linear& pooler() const { return pooler_; }  // null without
  // The output layer that is tied to the word embeddings: [..., width] to [..., vocabulary].
  at::Tensor logits(const at::Tensor& input, const at::Tensor& bias) {
    return word_embeddings_->logits(input, bias);
  }

 private:
  // Hidden states [samples, length, width] and the mask as layers take it.
  std::pair<at::Tensor, at::Tensor> embed(const BertInput& input);

  BertConfig config_;
  ParallelEmbedding word_embeddings_{nullptr};
  torch::nn::Embedding position_embeddings_{nullptr}, token_type_embeddings_{nullptr};
  torch::nn::LayerNorm embedding_norm_{nullptr};
  SampleDropout embedding_dropout_{nullptr};
  torch::nn::ModuleList layers_{nullptr};
  nn::Linear pooler_{nullptr};
};
TORCH_MODULE(BertEncoder);

// Parameter names and shapes are those of Hugging Face's BertForSequenceClassification and BertForMaskedLM,
// and so are logits for the same weights. Weights start as theirs do: normal(0, 0.02), biases 0, layer norms
// the identity, the embedding of the padding token 0.

// A class for each text: packed input (BertInput) to logits [samples, classes].
class BertForSequenceClassificationImpl : public torch::nn::Module,
                                          public LayerSequence,
                                          public ParallelModel {
 public:
  // Throws UsageError for values that cannot be.
  explicit BertForSequenceClassificationImpl(const BertConfig& config);
  at::Tensor forward(const at::Tensor& packed);  // throws UsageError for more positions than the model has
  const BertConfig& config() const { return config_; }  // what it was made of
  std::vector<ModelLayer> layers() override;            // the encoder's and "head"
  // By heads, inner widths and vocabulary. Throws UsageError with `sequence`.
  ParallelRules parallel_rules(bool sequence) const override;

 private:
  at::Tensor classify(const at::Tensor& hidden);

  BertConfig config_;
  BertEncoder bert_{nullptr};
  SampleDropout dropout_{nullptr};
  nn::Linear classifier_{nullptr};
};
TORCH_MODULE(BertForSequenceClassification);

// A token for each position: packed input to logits [samples, length, vocabulary]. The output layer shares
// the word embeddings' weight; "cls.predictions.decoder.weight" and ".bias" of files are names of
// "bert.embeddings.word_embeddings.weight" and "cls.predictions.bias".
class BertForMaskedLmImpl : public torch::nn::Module, public LayerSequence, public ParallelModel {
 public:
  // Throws UsageError for values that cannot be.
  explicit BertForMaskedLmImpl(const BertConfig& config);
  at::Tensor forward(const at::Tensor& packed);  // throws UsageError for more positions than the model has
  const BertConfig& config() const { return config_; }  // what it was made of
  std::vector<ModelLayer> layers() override;            // the encoder's and "head"
  // By heads, inner widths and vocabulary. Throws UsageError with `sequence`.
  ParallelRules parallel_rules(bool sequence) const override;

 private:
  at::Tensor predict(const at::Tensor& hidden);

  BertConfig config_;
  BertEncoder bert_{nullptr};
  nn::Linear transform_{nullptr};
  torch::nn::LayerNorm transform_norm_{nullptr};
  at::Tensor bias_;
};
TORCH_MODULE(BertForMaskedLm);

}  // namespace rondo
