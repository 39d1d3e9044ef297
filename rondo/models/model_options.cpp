#include "rondo/models/model_options.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "rondo/models/model_families.h"
#include "rondo/models/shared_model_options.h"

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

}  // namespace rondo
