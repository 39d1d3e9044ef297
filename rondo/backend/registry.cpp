#include "rondo/backend/registry.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <mutex>
#include <optional>

#include "rondo/backend/card_engine.h"
#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/engine/module.h"
#include "rondo/backend/engine_factories.h"
#include "rondo/backend/hierarchical/hierarchical_backend.h"
#include "rondo/backend/nccl/combined_backend.h"
#include "rondo/base/error.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

struct KnownEngine {
  Declaration declaration;
  detail::EngineOfOptions with;
};

// Engines are named process-wide, as they are in c10d; the built-in ones are here from the start.
struct Registry {
  std::mutex mutex;  // protects engines
  std::map<std::string, KnownEngine> engines;

  Registry() {
    for_each_engine_factory([this](auto factory) {
      using Factory = decltype(factory);
      using Options = typename Factory::Options;
      const Declaration declared = Factory::declaration();
      engines[declared.name] = {declared, [](const std::shared_ptr<const void>& options) {
                                  return Factory::engine(*static_cast<const Options*>(options.get()));
                                }};
    });
  }
};

Registry& registry() {
  static Registry instance;
  return instance;
}

// Returns the engine with the options in the brackets of `text`. A module's engine reads its `arguments`
// itself.
RegisteredBackend find_engine(const std::string& text, std::vector<std::string>& arguments) {
  EngineText named;
  try {
    named = split_engine(text);
    std::optional<KnownEngine> found;
    {
      Registry& known = registry();
      const std::lock_guard lock(known.mutex);
      if (const auto entry = known.engines.find(named.name); entry != known.engines.end())
        found = entry->second;
    }
    if (found) {
      return found->with(found->declaration.options.read(options_in_brackets(named, found->declaration)));
    }
  } catch (const UsageError& error) {
    throw UsageError(str("backend ", text, ": ", error.what()));
  }
  if (const std::size_t module = named.name.rfind(".so:"); module != std::string::npos) {
    arguments = named.arguments;
    return load_backend(named.name.substr(0, module + 3), named.name.substr(module + 4));
  }
  throw UsageError(str("backend '", named.name, "' is not one of ", join(backend_names(), ", "),
                       "; a program adds its own with rondo::register_backend, and path/to/module.so:name "
                       "takes one from a shared module"));
}

// Tests for the operation with one byte for each rank: a backend without it throws before anything is sent.
// Collective, as making a communicator is.
bool has_all_to_all(c10d::Backend& backend, c10::DeviceType device) {
  at::Tensor input = at::zeros({backend.getSize()}, at::TensorOptions().dtype(at::kByte).device(device));
  at::Tensor output = at::empty_like(input);
  std::vector<std::int64_t> send(static_cast<std::size_t>(backend.getSize()), 1), receive = send;
  try {
    backend.alltoall_base(output, input, receive, send)->wait();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

void detail::register_engine(Declaration declaration, std::type_index options, EngineOfOptions engine) {
  if (declaration.options.type() != options) {
    throw Error(str("backend ", declaration.name, " declares options of ",
                    type_name(declaration.options.type()), ", and its factory takes ", type_name(options)));
  }
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  const std::string name = declaration.name;
  known.engines[name] = {std::move(declaration), std::move(engine)};
}

void register_backend(const std::string& name, BackendFactory factory, const EngineTraits& traits) {
  register_backend<NoOptions>(
      {.name = name, .summary = "an engine of this program"},
      [factory = std::move(factory)](const BackendRequest& request, const NoOptions&) {
        return factory(request);
      },
      traits);
}

void replace_card_engine(const std::string& path) {
  Declaration declared = NcclEngineFactory::declaration();
  const RegisteredBackend between_cards = load_backend(path, declared.name);
  const auto card_of_device = [](c10::Device card) { return str(card.str(), " of host ", host_name()); };
  const RegisteredBackend engine =
      beside_control(between_cards.factory, between_cards.traits, card_of_device);
  const std::string name = declared.name;
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  known.engines[name] = {std::move(declared),
                         [engine](const std::shared_ptr<const void>&) { return engine; }};
}

void check_cards(const std::string& engine, const std::vector<RankCard>& cards) {
  if (split_engine(engine).name != "nccl") return;
  if (const std::string shared = shared_cards(cards); !shared.empty()) {
    throw UsageError(str("--backend ", engine, ": ", shared,
                         ", but NCCL supports one rank per GPU; start at most as many ranks on a host as it "
                         "has GPUs, or use --backend native"));
  }
}

void check_device_tensors(const std::string& engine, const EngineTraits& traits, c10::Device device) {
  if (device.is_cpu() || traits.device_tensors) return;
  throw UsageError(str("--backend ", engine,
                       ": this engine takes CPU tensors only, and the rank's device is ", device.str(),
                       "; use --backend auto, or --device cpu (an engine that takes them is "
                       "registered with EngineTraits::device_tensors)"));
}

Communicator make_communicator(const std::string& text, const BackendRequest& given) {
  BackendRequest request = given;
  request.arguments.clear();
  const RegisteredBackend found = find_engine(text, request.arguments);
  request.make = make_communicator;
  // Other engines reduce in any order; their messages transfer the values, which are then added in rank
  // order.
  const bool wrapped = request.deterministic && request.size > 1 && !found.traits.deterministic;
  if (wrapped) request.deterministic = false;
  const auto backend = wrapped ? make_rank_order_backend(text, request) : found.factory(request);
  Communicator made{backend, traits_of(backend, found.traits)};
  if (!found.built_in && !wrapped && made.traits.all_to_all && request.size > 1)
    made.traits.all_to_all = has_all_to_all(*backend, made.traits.control_device());
  return made;
}

c10::intrusive_ptr<c10d::Backend> make_backend(const std::string& name, const BackendRequest& request) {
  return make_communicator(name, request).backend;
}

std::vector<Declaration> backend_declarations() {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  std::vector<Declaration> declarations;
  for (const auto& [name, engine] : known.engines) declarations.push_back(engine.declaration);
  return declarations;
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const Declaration& declaration : backend_declarations()) names.push_back(declaration.name);
  return names;
}

}  // namespace rondo
