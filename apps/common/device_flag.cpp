#include "apps/common/device_flag.h"

#include "apps/common/flag_checks.h"
#include "rondo/env/device_name.h"

namespace rondo {

CLI::Option* add_device_flag(CLI::App& app, std::string& device) {
  return app
      .add_option("--device", device, "Where tensors live: auto (cuda if there is one), cpu, cuda or cuda:N")
      ->check(accepted_by([](const std::string& text) { parse_device_name(text, "device"); }))
      ->capture_default_str();
}

}  // namespace rondo
