#pragma once

#include <functional>
#include <memory>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "rondo/backend/engine/request.h"
#include "rondo/options/declaration.h"

namespace rondo {

namespace detail {

// Makes an engine from options, which have the struct type of the engine's declaration.
using EngineOfOptions = std::function<RegisteredBackend(const std::shared_ptr<const void>& options)>;
// Implements the templates below. Throws Error if the declaration is of another options struct.
void register_engine(Declaration declaration, std::type_index options, EngineOfOptions engine);

}  // namespace detail

// Makes this rank's end of a communicator with the engine's options, as a BackendFactory does.
template <class Options>
using EngineFactory = std::function<c10::intrusive_ptr<c10d::Backend>(const BackendRequest&, const Options&)>;

// Registers an engine for InitOptions::backend and `--backend`; a registered name is replaced. Its
// declaration lists the fields of `Options` that can be set by name, in brackets after the engine
// ("mine(window=3)") and as flags of a program that ends in run_rank(). Throws Error if the declaration is
// not of that struct. `traits` hold for communicators that are not ExtendedBackend. Any thread.
template <class Options>
void register_backend(const Declaration& declaration, EngineFactory<Options> factory,
                      const EngineTraits& traits = {}) {
  detail::register_engine(declaration, typeid(Options),
                          [factory = std::move(factory), traits](const std::shared_ptr<const void>& options) {
                            return RegisteredBackend{
                                [factory, options](const BackendRequest& request) {
                                  return factory(request, *static_cast<const Options*>(options.get()));
                                },
                                traits};
                          });
}
// Registers an engine without options.
void register_backend(const std::string& name, BackendFactory factory, const EngineTraits& traits = {});

// Makes a communicator. `name` is that of an engine, with options in brackets if it has some
// ("hierarchical(native, gloo)", see engine/engine_text.h), or a module's (see engine/module.h). Throws
// UsageError listing the known names for an unknown engine, naming an unknown option or an invalid value, or
// telling how to get an engine that is not in this build.
Communicator make_communicator(const std::string& name, const BackendRequest& request);
// Makes a communicator as above and returns its backend only.
c10::intrusive_ptr<c10d::Backend> make_backend(const std::string& name, const BackendRequest& request);

// Returns the declarations of the engines that make_communicator knows by name, sorted by name.
std::vector<Declaration> backend_declarations();
std::vector<std::string> backend_names();  // the names of backend_declarations()

}  // namespace rondo
