#include "rondo/env/device_name.h"

#include <charconv>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr int kMostDevices = 128;  // libtorch's device index has 8 bits

}  // namespace

DeviceName parse_device_name(const std::string& text, const std::string& what) {
  if (text == "auto" || text == "cpu" || text == "cuda" || text == "sim") return {text};
  for (const std::string kind : {"cuda", "sim"}) {
    if (!text.starts_with(kind + ":")) continue;
    const std::string digits = text.substr(kind.size() + 1);
    int index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size() && index >= 0 && index < kMostDevices)
      return {kind, index};
  }
  throw UsageError(
      str(what, " ", text, ": expected auto, cpu, cuda, or cuda:N for the device with index N, as cuda:0"));
}

}  // namespace rondo
