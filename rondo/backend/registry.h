#pragma once

#include <string>
#include <vector>

#include "rondo/backend/engine/request.h"

namespace rondo {

// Names an engine for InitOptions::backend and `--backend`; a name already taken is replaced. `traits` say
// what its communicators can do, as far as they do not answer themselves (ExtendedBackend). Any thread.
void register_backend(const std::string& name, BackendFactory factory, const EngineTraits& traits = {});

// Makes a communicator. `name` is that of an engine, with arguments in brackets where it takes some
// ("hierarchical(native, gloo)"), or a module's (see engine/module.h); throws UsageError listing the known
// names when there is no such engine, or saying how to get one that was left out of this build.
Communicator make_communicator(const std::string& name, const BackendRequest& request);
// The same, without what it can do.
c10::intrusive_ptr<c10d::Backend> make_backend(const std::string& name, const BackendRequest& request);

// Names that make_communicator accepts, sorted.
std::vector<std::string> backend_names();

}  // namespace rondo
