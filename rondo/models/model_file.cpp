#include "rondo/models/model_file.h"

#include <dlfcn.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/types.h>

#include <filesystem>
#include <string_view>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/models/model_module.h"
#include "rondo/models/script.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

void check_model_file_exists(const ModelFile& file) {
  std::error_code error;
  if (!fs::is_regular_file(file.path, error)) throw UsageError(str("--model ", file.path, ": no such file"));
}

// Returns the module's version stamp, "rondo model module 1|rondo 0.2.0|libtorch 2.9.1|"; empty if it has
// none.
std::string stamp_in(const std::string& bytes) {
  const std::string_view stamp(kModelModuleStamp);
  const std::string_view begin = stamp.substr(0, stamp.find(' ', stamp.find("module")) + 1);
  const std::size_t at = bytes.find(begin);
  if (at == std::string::npos) return {};
  const std::size_t end = bytes.find('\0', at);
  constexpr std::size_t kLongest = 200;
  return printable(bytes.substr(at, std::min(end - at, kLongest)));
}

void check_stamp(const std::string& path) {
  const std::string own(kModelModuleStamp);
  const std::string found = stamp_in(read_regular_file(path));
  if (found == own) return;
  if (found.empty()) {
    throw UsageError(
        str("--model ", path,
            " is no model module: it lacks the stamp of rondo/extend/model.h; build it "
            "with rondo_model(NAME SOURCES...) of CMake's find_package(rondo), from a source that "
            "includes that header"));
  }
  throw UsageError(str("--model ", path, " was built with another rondo or libtorch: it says '", found,
                       "', and this program is '", own, "'; build it again with these"));
}

Model load_module(const ModelFile& file, const nlohmann::json& config) {
  check_stamp(file.path);
  // Never unloaded: the model's code must outlive it. The path contains a '/', so dlopen searches no other
  // folder.
  void* const handle = dlopen(fs::absolute(file.path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    throw UsageError(str("--model ", file.path, " cannot be loaded: ", dlerror(),
                         "; a module finds libtorch and rondo's layers base, nn and models in the program"));
  const auto factory = reinterpret_cast<ModuleFactory*>(dlsym(handle, file.factory.c_str()));
  if (factory == nullptr || file.factory.empty()) {
    throw UsageError(str("--model ", file.path, ":", file.factory, ": the module does not export '",
                         file.factory, "'; it needs extern \"C\" void ",
                         file.factory.empty() ? "FACTORY" : file.factory,
                         "(const rondo::ModelRequest& request, rondo::Model& model)"));
  }
  const ModelRequest request{config};
  Model model;
  factory(request, model);
  if (!model.module || !model.forward)
    throw UsageError(
        str("--model ", file.path, ":", file.factory,
            " made no model: it must set the model's module and forward, as rondo::as_model() does"));
  return model;
}

void check_signature(const torch::jit::Module& module, const std::string& path) {
  const auto forward = module.find_method("forward");
  if (!forward) throw UsageError(str("--model ", path, ": the TorchScript module has no method forward"));
  const c10::FunctionSchema& schema = forward->function().getSchema();
  const std::vector<c10::Argument>& arguments = schema.arguments();  // the first one is the module
  const auto is_tensor = [](const c10::TypePtr& type) { return type->kind() == c10::TypeKind::TensorType; };
  bool fits = arguments.size() >= 2 && is_tensor(arguments[1].type());
  for (std::size_t i = 2; i < arguments.size(); ++i) fits = fits && arguments[i].default_value().has_value();
  fits = fits && schema.returns().size() == 1;
  if (fits) {
    const c10::TypePtr type = schema.returns().front().type();
    bool tensors = is_tensor(type);
    if (const auto tuple = type->cast<c10::TupleType>()) {
      tensors = !tuple->elements().empty();
      for (const c10::TypePtr& element : tuple->elements()) tensors = tensors && is_tensor(element);
    }
    if (const auto list = type->cast<c10::ListType>()) tensors = is_tensor(list->getElementType());
    fits = tensors;
  }
  if (fits) return;
  throw UsageError(
      str("--model ", path, ": the TorchScript module's signature is ", c10::str(schema),
          ", expected forward(self, x: Tensor), which gives a tensor or a tuple or list of them"));
}

Model model_of_script(const ModelFile& file) {
  const torch::jit::Module script = load_script(file.path);
  check_signature(script, file.path);
  return as_model(script);
}

}  // namespace

Model open_model(const std::string& name, const nlohmann::json& config) {
  const std::optional<ModelFile> file = model_file(name);
  if (!file) return make_model(name, config);
  check_model_file_exists(*file);
  Model model = file->is_module ? load_module(*file, config) : model_of_script(*file);
  if (model.config.empty()) model.config = config;
  model.name = plain_model_name(name);
  return model;
}

nlohmann::json default_model_config(const std::string& name) {
  return model_file(name) ? nlohmann::json::object() : model_config(name);
}

}  // namespace rondo
