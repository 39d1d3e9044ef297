#include "rondo/backend/registry.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <mutex>

#include "rondo/backend/engine/module.h"
#include "rondo/backend/gloo/factory.h"
#include "rondo/backend/hierarchical/hierarchical_backend.h"
#include "rondo/backend/mpi/factory.h"
#include "rondo/backend/native/native_backend.h"
#include "rondo/backend/nccl/factory.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

struct Registry {
  std::mutex mutex;  // protects backends
  std::map<std::string, RegisteredBackend> backends;
};

// Engines are named process-wide, as they are in c10d; the built-in ones are here from the start.
Registry& registry() {
  static Registry instance{{},
                           {{"native", {make_native_backend, kNativeTraits, true}},
                            {"gloo", {make_gloo_backend, {}, true}},
                            {"hierarchical", {make_hierarchical_backend, kHierarchicalTraits, true}},
                            {"mpi", {make_mpi_backend, kMpiTraits, true}},
                            {"nccl", {make_nccl_backend, kNcclTraits, true}}}};
  return instance;
}

// "hierarchical(native, gloo)" as name and arguments.
std::pair<std::string, std::vector<std::string>> split_arguments(const std::string& text) {
  const std::size_t open = text.find('(');
  if (open == std::string::npos) return {text, {}};
  if (!text.ends_with(')')) throw UsageError(str("backend '", text, "': the closing bracket is missing"));
  std::vector<std::string> arguments;
  // A nested name keeps its own commas.
  int depth = 0;
  std::string argument;
  const auto take = [&] {
    if (const std::string_view trimmed = trim(argument); !trimmed.empty()) arguments.emplace_back(trimmed);
    argument.clear();
  };
  for (const char c : text.substr(open + 1, text.size() - open - 2)) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth == 0) {
      take();
    } else {
      argument += c;
    }
  }
  take();
  return {std::string(trim(text.substr(0, open))), arguments};
}

RegisteredBackend find_backend(const std::string& name) {
  {
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    if (const auto found = known.backends.find(name); found != known.backends.end()) return found->second;
  }
  if (const std::size_t module = name.rfind(".so:"); module != std::string::npos)
    return load_backend(name.substr(0, module + 3), name.substr(module + 4));
  throw UsageError(str("backend '", name, "' is not one of ", join(backend_names(), ", "),
                       "; a program adds its own with rondo::register_backend, and path/to/module.so:name "
                       "takes one from a shared module"));
}

// Tries the operation, one byte for each rank: a backend without it throws before anything is sent. On all
// ranks, as making a communicator is.
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

void register_backend(const std::string& name, BackendFactory factory, const EngineTraits& traits) {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  known.backends[name] = {std::move(factory), traits};
}

Communicator make_communicator(const std::string& text, const BackendRequest& given) {
  const auto [name, arguments] = split_arguments(text);
  const RegisteredBackend found = find_backend(name);
  BackendRequest request = given;
  request.arguments = arguments;
  request.make = make_communicator;
  // Reductions of the others add as they like; their messages carry what is to be added in order.
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

std::vector<std::string> backend_names() {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  std::vector<std::string> names;
  for (const auto& [name, backend] : known.backends) names.push_back(name);
  return names;
}

}  // namespace rondo
