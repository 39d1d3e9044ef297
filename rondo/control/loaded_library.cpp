#include "rondo/control/loaded_library.h"

#include <dlfcn.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::control {

LoadedLibrary::LoadedLibrary(std::span<const char* const> names, const std::string& purpose,
                             const std::string& remedy)
    : remedy_(remedy) {
  std::string reason;
  for (const char* const name : names) {
    handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    name_ = name;
    if (handle_ != nullptr) return;
    reason += str(reason.empty() ? "" : "; ", dlerror());
  }
  throw Error(str(purpose, ", which cannot be loaded: ", reason, ". ", remedy));
}

void* LoadedLibrary::address(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (found == nullptr)
    throw Error(str(name_, " has no function ", name, ": a newer version is needed. ", remedy_));
  return found;
}

}  // namespace rondo::control
