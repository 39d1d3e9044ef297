#include "apps/common/device_flag.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.size() <= 3 && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

void check_device_name(const std::string& text, const std::string& what) {
  if (text == "auto" || text == "cpu" || text == "cuda" || text == "sim") return;
  if (text.starts_with("sim:") && is_number(text.substr(4))) return;
  throw UsageError(str(what, " ", text, ": expected one of auto, cpu, cuda"));
}

CLI::Option* add_device_flag(CLI::App& app, std::string& device) {
  return app.add_option("--device", device, "Where tensors live; auto: cuda if there is one")
      ->check(CLI::Validator(
          [](const std::string& text) {
            try {
              check_device_name(text, "device");
              return std::string();
            } catch (const UsageError& error) {
              return std::string(error.what());
            }
          },
          kDeviceNames))
      ->capture_default_str();
}

}  // namespace rondo
