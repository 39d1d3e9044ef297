#include "apps/common/device_flag.h"

#include "rondo/base/error.h"
#include "rondo/env/device_name.h"

namespace rondo {

CLI::Option* add_device_flag(CLI::App& app, std::string& device) {
  return app
      .add_option("--device", device, "Where tensors live: auto (cuda if there is one), cpu, cuda or cuda:N")
      ->check(CLI::Validator(
          [](const std::string& text) {
            try {
              parse_device_name(text, "device");
              return std::string();
            } catch (const UsageError& error) {
              return std::string(error.what());
            }
          },
          ""))
      ->capture_default_str();
}

}  // namespace rondo
