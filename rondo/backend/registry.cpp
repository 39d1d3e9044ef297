#include "rondo/backend/registry.h"

#include <map>
#include <mutex>

#include "rondo/backend/gloo/factory.h"
#include "rondo/backend/native/native_backend.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

struct Registry {
  std::mutex mutex;  // protects factories
  std::map<std::string, BackendFactory> factories;
};

// Engines are named process-wide, as they are in c10d; the built-in ones are here from the start.
Registry& registry() {
  static Registry instance{{}, {{"native", make_native_backend}, {"gloo", make_gloo_backend}}};
  return instance;
}

}  // namespace

void register_backend(const std::string& name, BackendFactory factory) {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  known.factories[name] = std::move(factory);
}

c10::intrusive_ptr<c10d::Backend> make_backend(const std::string& name, const BackendRequest& request) {
  BackendFactory factory;
  {
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    const auto found = known.factories.find(name);
    if (found != known.factories.end()) factory = found->second;
  }
  if (!factory) {
    throw UsageError(str("backend '", name, "' is not one of ", join(backend_names(), ", "),
                         "; another one is added with rondo::register_backend"));
  }
  return factory(request);
}

std::vector<std::string> backend_names() {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  std::vector<std::string> names;
  for (const auto& [name, factory] : known.factories) names.push_back(name);
  return names;
}

}  // namespace rondo
