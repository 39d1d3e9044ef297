#pragma once

#include <optional>
#include <string>

namespace rondo {

// A device as users name it: "auto" (a CUDA device where there is one, else the CPU), "cpu", "cuda" (the
// device of the local rank) or "cuda:N". "sim" and "sim:N" are those of the accelerator that a build's tests
// simulate; no help lists them.
struct DeviceName {
  std::string kind;            // "auto", "cpu", "cuda" or "sim"
  std::optional<int> index{};  // of cuda:N and sim:N

  bool operator==(const DeviceName&) const = default;
};

// Parses such a name. Throws UsageError for another text; `what` names where it stands.
DeviceName parse_device_name(const std::string& text, const std::string& what);

}  // namespace rondo
