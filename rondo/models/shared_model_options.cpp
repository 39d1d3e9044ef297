#include "rondo/models/shared_model_options.h"

namespace rondo {

OptionsOf<ContextOption> context_table() {
  OptionsOf<ContextOption> table;
  table.begin_group("Model");
  table.add("seq-len", &ContextOption::context,
            "Length of a sample: bytes of text (gpt), tokens (bert, default 128)", above_zero());
  return table;
}

OptionsOf<DropoutOption> dropout_table() {
  OptionsOf<DropoutOption> table;
  table.begin_group("Model");
  table.add("dropout", &DropoutOption::dropout, "Probability of dropout", within(0, 1));
  return table;
}

OptionsOf<InitOption> init_table() {
  OptionsOf<InitOption> table;
  table.begin_group("Model");
  table.add("from-pretrained", &InitOption::init,
            "Start from this Hugging Face folder (config.json, model.safetensors, of a bert vocab.txt or "
            "tokenizer.json)",
            path_to_read());
  return table;
}

OptionsOf<VocabularyOption> vocabulary_table() {
  OptionsOf<VocabularyOption> table;
  table.begin_group("Model");
  table.add("vocabulary", &VocabularyOption::vocabulary,
            "vocab.txt or tokenizer.json; default that of --from-pretrained", path_to_read());
  table.add("cased", &VocabularyOption::cased, "The vocabulary has capitals and accents").has_flag = false;
  return table;
}

OptionsOf<OwnModelOptions> own_model_table() {
  OptionsOf<OwnModelOptions> table;
  table.include(context_table());
  table.include(vocabulary_table());
  return table;
}

OptionsOf<TransformerOptions> transformer_table() {
  OptionsOf<TransformerOptions> table;
  table.begin_group("Model");
  table.add("layers", &TransformerOptions::layers, "Number of blocks", above_zero());
  table.add("heads", &TransformerOptions::heads, "Attention heads", above_zero());
  table.add("width", &TransformerOptions::width, "Width of the blocks", above_zero());
  table.include(context_table());
  table.include(dropout_table());
  return table;
}

nlohmann::json transformer_settings(const TransformerOptions& options) {
  nlohmann::json settings = nlohmann::json::object();
  if (options.layers) settings["layers"] = *options.layers;
  if (options.heads) settings["heads"] = *options.heads;
  if (options.width) settings["width"] = *options.width;
  if (options.dropout) settings["dropout"] = *options.dropout;
  return settings;
}

}  // namespace rondo
