#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

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

// The name in this model (and in Hugging Face's) of a tensor in a file: old files call the parameters of
// layer norms gamma and beta, and files of the bare encoder leave out "bert.".
std::string bert_tensor_name(const std::string& name_in_file);

}  // namespace rondo
