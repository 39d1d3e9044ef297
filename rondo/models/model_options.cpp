#include "rondo/models/model_options.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "rondo/models/model_families.h"

namespace rondo {
namespace {

constexpr const char* kModuleEntry = "FILE.so:FACTORY";
constexpr const char* kScriptEntry = "FILE.pt";

}  // namespace

std::vector<Declaration> declared_models() {
  std::vector<Declaration> all;
  for_each_model_family([&](auto family) {
    for (Declaration& each : decltype(family)::declarations()) all.push_back(std::move(each));
  });
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

std::optional<ModelFile> model_file(const std::string& model) {
  constexpr std::string_view kModule = ".so:";
  if (const std::size_t at = model.rfind(kModule); at != std::string::npos && at > 0)
    return ModelFile{model.substr(0, at + 3), true, model.substr(at + kModule.size())};
  if (model.size() > 3 && (model.ends_with(".pt") || model.ends_with(".pth"))) return ModelFile{model};
  return std::nullopt;
}

std::vector<Declaration> declared_model_files() {
  const OptionsOf<OwnModelOptions> options = own_model_table();
  return {{kScriptEntry, "a model of your own: TorchScript", options},
          {kModuleEntry, "a model of your own: a shared module and the factory in it", options}};
}

const Declaration* find_model_declaration(const std::vector<Declaration>& entries, const std::string& model) {
  const std::optional<ModelFile> file = model_file(model);
  if (!file) return find_declaration(entries, model);
  return find_declaration(entries, file->is_module ? kModuleEntry : kScriptEntry);
}

std::string absolute_model_name(const std::string& model) {
  const std::optional<ModelFile> file = model_file(model);
  if (!file) return model;
  return std::filesystem::absolute(file->path).lexically_normal().string() +
         (file->is_module ? ":" + file->factory : "");
}

std::string plain_model_name(const std::string& model) {
  const std::optional<ModelFile> file = model_file(model);
  if (!file) return model;
  return std::filesystem::path(file->path).filename().string() + (file->is_module ? ":" + file->factory : "");
}

std::string short_model_name(const std::string& model) {
  const std::optional<ModelFile> file = model_file(model);
  return file ? std::filesystem::path(file->path).stem().string() : model;
}

OptionsOf<ContextOption> context_table() {
  OptionsOf<ContextOption> table;
  table.begin_group("Model");
  table.add("seq-len", &ContextOption::context,
            "Sequence length: bytes of text (gpt), tokens (bert, default 128)", above_zero());
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
            "Start from this Hugging Face folder (config.json, model.safetensors; bert: also its vocabulary)",
            path_to_read());
  return table;
}

OptionsOf<VocabularyOption> vocabulary_table() {
  OptionsOf<VocabularyOption> table;
  table.begin_group("Model");
  table.add("vocabulary", &VocabularyOption::vocabulary,
            "vocab.txt or tokenizer.json; default that of --from-pretrained", path_to_read());
  table.add("cased", &VocabularyOption::cased, "The vocabulary distinguishes capitals and accents").has_flag =
      false;
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
