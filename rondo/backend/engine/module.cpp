#include "rondo/backend/engine/module.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr const char* kFunction = "rondo_register_backends";

class LoadedModule final : public BackendModule {
 public:
  int version() const override { return kVersion; }
  void add(const std::string& name, BackendFactory factory, const EngineTraits& traits) override {
    backends_[name] = {std::move(factory), traits};
  }
  const std::map<std::string, RegisteredBackend>& backends() const { return backends_; }

 private:
  std::map<std::string, RegisteredBackend> backends_;
};

LoadedModule load(const std::string& path) {
  // Never unloaded: its backends' code must outlive every communicator. RTLD_GLOBAL, because MPI loads
  // plug-ins that look for MPI's symbols.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) throw UsageError(str("backend module ", path, " cannot be loaded: ", dlerror()));
  using Function = void (*)(BackendModule&);
  const auto function = reinterpret_cast<Function>(dlsym(handle, kFunction));
  if (function == nullptr) {
    throw UsageError(str("backend module ", path, " does not export ", kFunction,
                         "; see rondo/extend/engine.h for its requirements"));
  }
  LoadedModule module;
  function(module);
  return module;
}

}  // namespace

RegisteredBackend load_backend(const std::string& path, const std::string& name) {
  // A cache: dlopen would return the same module again.
  static std::mutex mutex;  // protects modules
  static std::map<std::string, LoadedModule> modules;
  const std::lock_guard lock(mutex);
  auto found = modules.find(path);
  if (found == modules.end()) found = modules.emplace(path, load(path)).first;
  const auto& backends = found->second.backends();
  if (const auto backend = backends.find(name); backend != backends.end()) return backend->second;
  std::vector<std::string> names;
  for (const auto& [known, backend] : backends) names.push_back(known);
  throw UsageError(str("backend module ", path, " has no backend '", name, "'; it has: ", join(names, ", ")));
}

}  // namespace rondo
