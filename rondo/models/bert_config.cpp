#include "rondo/models/bert_config.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/models/config_checks.h"
#include "rondo/models/config_entries.h"

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

}  // namespace rondo
