#pragma once

#include <string>

#include "rondo/backend/engine/request.h"

// Third-party backends in shared modules that are loaded by name: `--backend path/to/module.so:name`.
//
// A module exports one C function,
//
//   extern "C" void rondo_register_backends(rondo::BackendModule& module) {
//     module.add("name", [](const rondo::BackendRequest& request) { return c10::make_intrusive<...>(...); });
//   }
//
// compiled against the same headers of rondo and libtorch as the program that loads it. A module need not
// link rondo; request.h declares the factory's input.
namespace rondo {

// The interface through which a module registers its backends; see the top of this file.
class BackendModule {
 public:
  // Version of the factories' input; grows with each change.
  static constexpr int kVersion = 3;

  virtual ~BackendModule() = default;
  // Returns the version of the program that loads the module. A module may compare it with kVersion, its own
  // version.
  virtual int version() const = 0;
  // Registers one of the module's backends. `traits` hold for communicators that are not ExtendedBackend.
  virtual void add(const std::string& name, BackendFactory factory, const EngineTraits& traits = {}) = 0;
};

// Returns the engine `name` of the module at `path`, which is loaded at the first call and stays loaded. A
// `path` without '/' is searched as the dynamic linker does. Throws UsageError if the file cannot be loaded,
// does not export rondo_register_backends, or has no such backend (the error names those it has). Any thread.
RegisteredBackend load_backend(const std::string& path, const std::string& name);

}  // namespace rondo
