#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

// The models that make_model() knows, and what each can be told, as their families declare it; sorted by
// name. Without libtorch.
std::vector<Declaration> declared_models();

// A model of the user's own in a file: a shared module with a factory, or TorchScript.
struct ModelFile {
  std::string path;
  bool is_module = false;    // else TorchScript
  std::string factory = {};  // of a shared module
};

// What `--model PATH.so:FACTORY` and `--model PATH.pt` mean; empty for any other name.
std::optional<ModelFile> model_file(const std::string& model);
// What such models can be told: two entries, which stand for all files of their kind.
std::vector<Declaration> declared_model_files();
// The entry of `entries` for a model's name or file; null when there is none.
const Declaration* find_model_declaration(const std::vector<Declaration>& entries, const std::string& model);
// The name with an absolute path in it, which means the same from any folder.
std::string absolute_model_name(const std::string& model);
// Model::name of it, without folders: "gpt-tiny", "libmine.so:make_model", "model.pt".
std::string plain_model_name(const std::string& model);
// What stands for a model in names of folders: "gpt-tiny", "libmine", "model".
std::string short_model_name(const std::string& model);

// Options that several models take, each declared once. An empty one is the model's own value.

// Option of models that read sequences.
struct ContextOption {
  std::optional<std::int64_t> context = {};  // of a sample: bytes or tokens
};
struct DropoutOption {
  std::optional<double> dropout = {};  // a probability
};
// Option of models that Hugging Face has as well.
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
