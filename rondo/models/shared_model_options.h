#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "rondo/options/option_table.h"

namespace rondo {

// Options that several models take, each declared once. Empty: the model's own value.

// Of models that read sequences.
struct ContextOption {
  std::optional<std::int64_t> context = {};  // of a sample: bytes or tokens
};
struct DropoutOption {
  std::optional<double> dropout = {};  // a probability
};
// Of models that Hugging Face has as well.
struct InitOption {
  std::string init = {};  // a folder of theirs; empty: the weights are new
};
// Options of models that read text in WordPiece's tokens.
struct VocabularyOption {
  std::string vocabulary = {};  // a vocab.txt or tokenizer.json
  bool cased = false;           // it has capitals and accents
};
// Options of a model in a file of the user's.
struct OwnModelOptions : ContextOption, VocabularyOption {};
// Options of models made of transformer blocks.
struct TransformerOptions : ContextOption, DropoutOption {
  std::optional<std::int64_t> layers = {};
  std::optional<std::int64_t> heads = {};
  std::optional<std::int64_t> width = {};
};

OptionsOf<ContextOption> context_table();           // --seq-len
OptionsOf<DropoutOption> dropout_table();           // --dropout
OptionsOf<InitOption> init_table();                 // --from-pretrained
OptionsOf<VocabularyOption> vocabulary_table();     // --vocabulary, cased
OptionsOf<OwnModelOptions> own_model_table();       // --seq-len, --vocabulary, cased
OptionsOf<TransformerOptions> transformer_table();  // --layers, --heads, --width and those of its bases

// Layers, heads, width and dropout as make_model() takes them, as far as they are given.
nlohmann::json transformer_settings(const TransformerOptions& options);

}  // namespace rondo
