#pragma once

#include <string>

#include "rondo/backend/engine/request.h"

// Backends of others, in shared modules that are loaded by name: `--backend path/to/module.so:name`.
//
// A module exports one C function,
//
//   extern "C" void rondo_register_backends(rondo::BackendModule& module) {
//     module.add("name", [](const rondo::BackendRequest& request) { return c10::make_intrusive<...>(...); });
//   }
//
// compiled against the same headers of rondo and libtorch as the program that loads it. Nothing of rondo
// needs to be linked into it: what the factory gets is in request.h.
namespace rondo {

// What a module gets to name its backends with; see the top of this file.
class BackendModule {
 public:
  // Grows when what a factory is given changes.
  static constexpr int kVersion = 3;

  virtual ~BackendModule() = default;
  // Of the program that loads the module; a module may compare it with kVersion, as it was compiled.
  virtual int version() const = 0;
  // Names one of the module's backends, and says what it can do where it does not answer itself
  // (ExtendedBackend).
  virtual void add(const std::string& name, BackendFactory factory, const EngineTraits& traits = {}) = 0;
};

// The engine `name` of the module at `path`, which is loaded the first time and stays. Without a '/' in it,
// `path` is looked for as the dynamic linker does. Throws UsageError when the file cannot be loaded, does not
// export rondo_register_backends, or has no such backend (it names those it has). Any thread.
RegisteredBackend load_backend(const std::string& path, const std::string& name);

}  // namespace rondo
