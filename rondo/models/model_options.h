#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

// Returns the models of make_model() with their options, as their families declare them, sorted by name.
// Needs no libtorch.
std::vector<Declaration> declared_models();

// A user's model in a file: a shared module with a factory, or TorchScript.
struct ModelFile {
  std::string path;
  bool is_module = false;    // false: TorchScript
  std::string factory = {};  // name of the factory in a shared module
};

// Parses `--model PATH.so:FACTORY` and `--model PATH.pt`; empty for any other name.
std::optional<ModelFile> model_file(const std::string& model);
// Returns the options of models in files: two entries, one for each kind of file.
std::vector<Declaration> declared_model_files();
// Returns the entry of `entries` for a model's name or file; null if there is none.
const Declaration* find_model_declaration(const std::vector<Declaration>& entries, const std::string& model);
// Returns the name with an absolute path, valid in any folder.
std::string absolute_model_name(const std::string& model);
// Returns Model::name without folders: "gpt-tiny", "libmine.so:make_model", "model.pt".
std::string plain_model_name(const std::string& model);
// Returns the model's part in names of folders: "gpt-tiny", "libmine", "model".
std::string short_model_name(const std::string& model);

// Options that several models take, each declared once. Empty: the model's default.

// Option of models whose input is a sequence.
struct ContextOption {
  std::optional<std::int64_t> context = {};  // length of a sample in bytes or tokens
};
struct DropoutOption {
  std::optional<double> dropout = {};  // a probability
};
// Option of models that can load weights in Hugging Face's format.
struct InitOption {
  std::string init = {};  // folder in Hugging Face's format; empty: new weights
};
// Options of models that read text as WordPiece tokens.
struct VocabularyOption {
  std::string vocabulary = {};  // a vocab.txt or tokenizer.json
  bool cased = false;           // whether the vocabulary has capitals and accents
};
// Options of a user's model in a file.
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
OptionsOf<TransformerOptions> transformer_table();  // --layers, --heads, --width and the base options

// Returns the given ones of layers, heads, width and dropout as make_model() takes them.
nlohmann::json transformer_settings(const TransformerOptions& options);

}  // namespace rondo
