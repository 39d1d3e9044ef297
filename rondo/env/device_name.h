#pragma once

#include <optional>
#include <string>

namespace rondo {

// A device as users name it: "auto" (a CUDA device where there is one, else the CPU), "cpu", "cuda" (the
// device of the local rank) or "cuda:N".
struct DeviceName {
  std::string kind;            // "auto", "cpu" or "cuda"
  std::optional<int> index{};  // of cuda:N

  bool operator==(const DeviceName&) const = default;
};

// Parses such a name. Throws UsageError for another text; `what` names where it stands.
DeviceName parse_device_name(const std::string& text, const std::string& what);

}  // namespace rondo
