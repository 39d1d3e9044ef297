#pragma once

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

}  // namespace rondo
