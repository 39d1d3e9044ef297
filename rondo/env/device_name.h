#pragma once

#include <optional>
#include <string>

namespace rondo {

// A device as users name it: "auto" (a CUDA device if there is one, else the CPU), "cpu", "cuda" (the device
// of the local rank) or "cuda:N". "sim" and "sim:N" name the simulated accelerator of test builds; help does
// not list them.
struct DeviceName {
  std::string kind;            // "auto", "cpu", "cuda" or "sim"
  std::optional<int> index{};  // N of "cuda:N" and "sim:N"

  bool operator==(const DeviceName&) const = default;
};

// Parses a device name. Throws UsageError for other text; `what` names its origin.
DeviceName parse_device_name(const std::string& text, const std::string& what);

}  // namespace rondo
