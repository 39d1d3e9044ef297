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

// Task of a BERT, which determines the layers after the encoder.
enum class BertTask {
  classify,  // a class for the whole text
  mlm,       // the token at each [MASK]: masked language modelling
};

// Throws UsageError unless `name` is "classify" or "mlm".
BertTask parse_bert_task(const std::string& name);

// Configuration of a BERT, BERT base by default (Devlin et al., "BERT: pre-training of deep bidirectional
// transformers for language understanding", 2019).
struct BertConfig {
  BertTask task = BertTask::classify;  // layers after the encoder
  std::int64_t vocabulary = 30522;     // number of tokens
  std::int64_t positions = 512;        // maximum sequence length
  std::int64_t token_types = 2;        // maximum number of texts in a sample
  std::int64_t layers = 12;            // layers of the encoder
  std::int64_t heads = 12;             // attention heads in each layer
  std::int64_t width = 768;            // width of hidden states; a multiple of `heads`
  std::int64_t intermediate = 3072;    // inner width of a layer's two-layer perceptron
  double dropout = 0.1;                // probability for embeddings and each layer's two outputs
  double attention_dropout = 0.1;      // probability for attention probabilities
  double classifier_dropout = 0.1;     // probability before the classifier
  std::string activation = "gelu";     // gelu, gelu_new (tanh form) or relu
  double epsilon = 1e-12;              // epsilon of layer norms
  std::int64_t padding = 0;            // token whose embedding is not trained
  std::int64_t classes = 2;            // number of classes for task classify
};

// Throws UsageError naming the invalid value.
void check(const BertConfig& config);

// Returns the architecture of a Hugging Face config.json; `task` and `classes` keep their defaults. Throws
// DataError naming an entry that is missing or unsupported (another model type, relative positions, a
// decoder); `source` names the file in the message.
BertConfig bert_config_from(const nlohmann::json& config, const std::string& source);

// Returns the config.json with which Hugging Face's transformers open the model.
nlohmann::ordered_json hugging_face_config(const BertConfig& config);

// Returns `config` as make_model("bert", ...) takes it.
nlohmann::json bert_model_config(const BertConfig& config);
// Returns the name in this model (and in Hugging Face's) of a tensor in a file. Old files name layer norm
// parameters gamma and beta, and files of the bare encoder omit "bert.".
std::string bert_tensor_name(const std::string& name_in_file);

// The input of BERT: int64 [samples, length] each.
struct BertInput {
  at::Tensor tokens;       // indices into the vocabulary
  at::Tensor token_types;  // 0 in the first text, 1 in the second
  at::Tensor mask;         // 1 at tokens, 0 at padding

  // Splits a tensor [samples, 3, length] into the three, in this order: the form of data sets and
  // Model::forward.
  static BertInput unpack(const at::Tensor& packed);
};

// One post-layer-norm transformer layer: h = norm(x + attention(x)), norm(h + mlp(h)). Each is a unit.
class BertLayerImpl : public torch::nn::Module, public ParallelLayer {
 public:
  // Throws UsageError for invalid values.
  explicit BertLayerImpl(const BertConfig& config);
  // `hidden` is [samples, length, width]; `mask` is bool [samples, 1, 1, length], true at positions to attend
  // to.
  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& mask);
  // Divides the layer among ranks by heads, and by the inner width of its perceptron.
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
  // `with_pooler`: adds the layer that pool() needs.
  BertEncoderImpl(const BertConfig& config, bool with_pooler);
  // Returns [samples, length, width]. Throws UsageError for more positions than the model has.
  at::Tensor forward(const BertInput& input);
  // Returns "bert.embeddings" and "bert.encoder.layer.0", ...: from packed input to hidden states and the
  // mask.
  std::vector<ModelLayer> layers();
  // Returns tanh of a linear function of the first token's state: [samples, width].
  at::Tensor pool(const at::Tensor& hidden);
  // Returns the weight [vocabulary, width].
  const at::Tensor& word_embeddings() const { return word_embeddings_->weight; }
  const nn::Linear& pooler() const { return pooler_; }  // null without a pooler
  // Applies the output layer, tied to the word embeddings: [..., width] to [..., vocabulary].
  at::Tensor logits(const at::Tensor& input, const at::Tensor& bias) {
    return word_embeddings_->logits(input, bias);
  }

 private:
  // Returns hidden states [samples, length, width] and the mask in the layers' form.
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
// and logits are the same for the same weights. Weights are initialised as theirs are: normal(0, 0.02),
// biases 0, layer norms the identity, the embedding of the padding token 0.

// A classifier of texts: packed input (BertInput) to logits [samples, classes].
class BertForSequenceClassificationImpl : public torch::nn::Module,
                                          public LayerSequence,
                                          public ParallelModel {
 public:
  // Throws UsageError for invalid values.
  explicit BertForSequenceClassificationImpl(const BertConfig& config);
  at::Tensor forward(const at::Tensor& packed);  // throws UsageError for more positions than the model has
  const BertConfig& config() const { return config_; }  // configuration of the model
  std::vector<ModelLayer> layers() override;            // layers of the encoder and "head"
  // Divides by heads, inner widths and vocabulary. Throws UsageError with `sequence`.
  ParallelRules parallel_rules(bool sequence) const override;

 private:
  at::Tensor classify(const at::Tensor& hidden);

  BertConfig config_;
  BertEncoder bert_{nullptr};
  SampleDropout dropout_{nullptr};
  nn::Linear classifier_{nullptr};
};
TORCH_MODULE(BertForSequenceClassification);

// A masked language model: packed input to logits [samples, length, vocabulary]. The output layer shares the
// word embeddings' weight. In files, "cls.predictions.decoder.weight" and ".bias" are names of
// "bert.embeddings.word_embeddings.weight" and "cls.predictions.bias".
class BertForMaskedLmImpl : public torch::nn::Module, public LayerSequence, public ParallelModel {
 public:
  // Throws UsageError for invalid values.
  explicit BertForMaskedLmImpl(const BertConfig& config);
  at::Tensor forward(const at::Tensor& packed);  // throws UsageError for more positions than the model has
  const BertConfig& config() const { return config_; }  // configuration of the model
  std::vector<ModelLayer> layers() override;            // layers of the encoder and "head"
  // Divides by heads, inner widths and vocabulary. Throws UsageError with `sequence`.
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
