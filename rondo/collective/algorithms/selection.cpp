#include "rondo/collective/algorithms/selection.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/algorithms/registry.h"

namespace rondo::collective {
namespace {

// An algorithm selected for one operation must support it; one selected for all is used for the operations
// that it supports.
void check_operation(const std::string& operation, const std::string& algorithm, const std::string& origin) {
  OperationKind kind{};
  try {
    kind = find_operation(operation);
  } catch (const UsageError& e) {
    throw UsageError(str(origin, ": ", e.what()));
  }
  if (algorithm != kEngine && !find_algorithm(algorithm).has(kind))
    throw UsageError(str(origin, ": ", operation, "=", algorithm, ": this algorithm has no such operation"));
}

}  // namespace

AlgorithmSelection::AlgorithmSelection(const std::string& text, const std::string& origin) {
  std::vector<std::string> known = algorithm_names();
  known.insert(known.begin(), kEngine);
  for (const std::string& part : split(text, ',')) {
    const auto equals = part.find('=');
    const std::string operation = equals == std::string::npos ? "" : part.substr(0, equals);
    const std::string algorithm = equals == std::string::npos ? part : part.substr(equals + 1);
    if (std::find(known.begin(), known.end(), algorithm) == known.end())
      throw UsageError(str(origin, ": '", algorithm, "' is not one of ", join(known, ", ")));
    if (!operation.empty()) check_operation(operation, algorithm, origin);
    selected_[operation] = algorithm;
  }
}

const std::string& AlgorithmSelection::of(OperationKind operation) const {
  static const std::string engine = kEngine;
  for (const std::string& key : {std::string(name(operation)), std::string()}) {
    if (const auto found = selected_.find(key); found != selected_.end()) return found->second;
  }
  return engine;
}

bool AlgorithmSelection::only_engine() const {
  return std::all_of(selected_.begin(), selected_.end(),
                     [](const auto& entry) { return entry.second == kEngine; });
}

}  // namespace rondo::collective
