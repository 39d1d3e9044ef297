#include "rondo/models/bert_config.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/models/config_checks.h"

namespace rondo {
namespace {

// Reads of one config.json; errors name the file and the entry.
class Entries {
 public:
  Entries(const nlohmann::json& config, const std::string& source) : config_(config), source_(source) {
    if (!config.is_object()) throw DataError(str(source, ": expected a JSON object"));
  }

  std::int64_t integer(const char* key) const {
    const nlohmann::json& value = find(key);
    if (!value.is_number_integer()) fail(key, "a whole number");
    return value.get<std::int64_t>();
  }
  double number(const char* key, double otherwise) const {
    if (!config_.contains(key) || config_.at(key).is_null()) return otherwise;
    if (!config_.at(key).is_number()) fail(key, "a number");
    return config_.at(key).get<double>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!config_.contains(key) || config_.at(key).is_null()) return otherwise;
    if (!config_.at(key).is_string()) fail(key, "a text");
    return config_.at(key).get<std::string>();
  }
  // A setting that has to be `expected` where it is there at all.
  template <class Value>
  void require(const char* key, const Value& expected) const {
    if (config_.contains(key) && !config_.at(key).is_null() && config_.at(key) != expected) {
      fail(key, nlohmann::json(expected).dump());
    }
  }
  [[noreturn]] void fail(const char* key, const std::string& expected) const {
    throw DataError(str(source_, ": ", key, " is ", config_.at(key).dump(), ", expected ", expected));
  }

 private:
  const nlohmann::json& find(const char* key) const {
    if (!config_.contains(key)) throw DataError(str(source_, ": '", key, "' is missing"));
    return config_.at(key);
  }

  const nlohmann::json& config_;
  const std::string& source_;
};

}  // namespace

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
  positive("layers", config.layers);
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
  const Entries entries(config, source);
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
  result.padding = static_cast<std::int64_t>(entries.number("pad_token_id", 0));
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

}  // namespace rondo
