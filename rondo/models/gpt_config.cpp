#include "rondo/models/gpt_config.h"

#include "rondo/models/config_checks.h"
#include "rondo/models/config_entries.h"

namespace rondo {

GptConfig gpt_config_from(const nlohmann::json& config, const std::string& source) {
  const ConfigEntries entries(config, source);
  entries.require("model_type", "gpt2");
  entries.require("activation_function", "gelu_new");
  entries.require("layer_norm_epsilon", 1e-5);
  entries.require("scale_attn_weights", true);
  entries.require("scale_attn_by_inverse_layer_idx", false);
  entries.require("add_cross_attention", false);
  GptConfig result;
  result.vocabulary = entries.integer("vocab_size");
  result.context = entries.integer("n_positions");
  result.layers = entries.integer("n_layer");
  result.heads = entries.integer("n_head");
  result.width = entries.integer("n_embd");
  entries.require("n_inner", 4 * result.width);
  result.dropout = entries.number("resid_pdrop", 0.1);
  result.tied_head = !config.contains("tie_word_embeddings") || config.at("tie_word_embeddings") == true;
  try {
    check(result);
  } catch (const UsageError& error) {
    throw DataError(str(source, ": ", error.what()));
  }
  return result;
}

nlohmann::ordered_json hugging_face_config(const GptConfig& config) {
  return {{"model_type", "gpt2"},
          {"architectures", {"GPT2LMHeadModel"}},
          {"vocab_size", config.vocabulary},
          {"n_positions", config.context},
          {"n_ctx", config.context},
          {"n_embd", config.width},
          {"n_layer", config.layers},
          {"n_head", config.heads},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", 1e-5},
          {"resid_pdrop", config.dropout},
          {"embd_pdrop", config.dropout},
          {"attn_pdrop", config.dropout},
          {"tie_word_embeddings", config.tied_head},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

std::string gpt_tensor_name(const std::string& name_in_file) {
  if (name_in_file.starts_with("transformer.") || name_in_file.starts_with("lm_head.")) return name_in_file;
  return "transformer." + name_in_file;
}

bool is_transposed_in_gpt2(const std::string& name) {
  return name.ends_with(".c_attn.weight") || name.ends_with(".c_proj.weight") ||
         name.ends_with(".c_fc.weight");
}

bool is_mask_in_gpt2(const std::string& name_in_file) {
  return name_in_file.ends_with(".attn.bias") || name_in_file.ends_with(".attn.masked_bias");
}

nlohmann::json gpt_model_config(const GptConfig& config) {
  return {{"vocabulary", config.vocabulary},
          {"context", config.context},
          {"layers", config.layers},
          {"heads", config.heads},
          {"width", config.width},
          {"dropout", config.dropout},
          {"tied_head", config.tied_head},
          {"experts", config.experts},
          {"experts_per_token", config.experts_per_token},
          {"capacity_factor", config.capacity_factor},
          {"balance_loss", config.balance_loss}};
}

}  // namespace rondo
