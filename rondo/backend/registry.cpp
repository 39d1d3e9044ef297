#include "rondo/backend/registry.h"

#include <map>
#include <mutex>

#include "rondo/backend/gloo/factory.h"
#include "rondo/backend/hierarchical/hierarchical_backend.h"
#include "rondo/backend/module.h"
#include "rondo/backend/mpi/factory.h"
#include "rondo/backend/native/native_backend.h"
#include "rondo/backend/nccl/factory.h"
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
  static Registry instance{{},
                           {{"native", make_native_backend},
                            {"gloo", make_gloo_backend},
                            {"hierarchical", make_hierarchical_backend},
                            {"mpi", make_mpi_backend},
                            {"nccl", make_nccl_backend}}};
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

}  // namespace

void register_backend(const std::string& name, BackendFactory factory) {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  known.factories[name] = std::move(factory);
}

c10::intrusive_ptr<c10d::Backend> make_backend(const std::string& text, const BackendRequest& given) {
  const auto [name, arguments] = split_arguments(text);
  BackendRequest request = given;
  request.arguments = arguments;
  // Their reductions add as they like; their messages carry what is to be added in order.
  const bool adds_in_rank_order = name == "native" || name == "hierarchical";
  if (request.reproducible && request.size > 1 && !adds_in_rank_order) {
    request.reproducible = false;
    return make_rank_order_backend(text, request);
  }
  BackendFactory factory;
  {
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    const auto found = known.factories.find(name);
    if (found != known.factories.end()) factory = found->second;
  }
  if (const std::size_t module = name.rfind(".so:"); !factory && module != std::string::npos) {
    factory = load_backend(name.substr(0, module + 3), name.substr(module + 4));
  }
  if (!factory) {
    throw UsageError(str("backend '", name, "' is not one of ", join(backend_names(), ", "),
                         "; a program adds its own with rondo::register_backend, and path/to/module.so:name "
                         "takes one from a shared module"));
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
