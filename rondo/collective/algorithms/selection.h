#pragma once

#include <map>
#include <string>

#include "rondo/collective/request.h"

namespace rondo::collective {

// Name of the shared-memory engine itself, beside the names of registry.h.
inline constexpr const char* kEngine = "engine";

// A user's selection of algorithms by operation. The engine runs operations without one. Any thread.
class AlgorithmSelection {
 public:
  AlgorithmSelection() = default;
  // Parses "ring" for all operations that it supports, or "all_reduce=ring,broadcast=engine"; names as in
  // registry.h. Throws UsageError naming the error; `origin` is the flag or variable of the text.
  AlgorithmSelection(const std::string& text, const std::string& origin);

  // Returns the algorithm's name, or kEngine.
  const std::string& of(OperationKind operation) const;
  // Returns whether the engine runs every operation.
  bool only_engine() const;

 private:
  std::map<std::string, std::string> selected_;  // by operation; "" for all others
};

}  // namespace rondo::collective
