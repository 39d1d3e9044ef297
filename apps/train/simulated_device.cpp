#include "apps/train/simulated_device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <filesystem>

#include "rondo/backend/card_engine.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Empty where there is none.
std::filesystem::path simulated_device_module() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path programs = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path module = programs / ".." / "lib" / "rondo_sim.so";
  return fs::exists(module, ignored) ? module.lexically_normal() : fs::path();
}

}  // namespace

void load_simulated_device(const std::string& device) {
  if (!is_simulated(device)) return;
  const std::filesystem::path module = simulated_device_module();
  if (module.empty()) {
    throw UsageError(str("--device ", device,
                         ": the simulated accelerator is a part of rondo's tests, and these programs were "
                         "installed or built without them; use --device cpu, cuda or auto, or a program of a "
                         "build folder with RONDO_BUILD_TESTS=ON"));
  }
  replace_card_engine(module.string());
}

bool is_simulated(const std::string& device) { return device == "sim" || device.starts_with("sim:"); }

c10::Device simulated_device(const std::string& device, int local_rank) {
  const int count = c10::impl::getDeviceGuardImpl(c10::kPrivateUse1)->deviceCount();
  // check_device_name() has seen to its being a number.
  const int index =
      device == "sim" ? local_rank % count : static_cast<int>(parse_integer(device.substr(4), "--device"));
  if (index >= count) {
    throw UsageError(str("--device ", device, ": the simulated accelerator has sim:0 to sim:", count - 1,
                         "; RONDO_SIM_DEVICES sets their number"));
  }
  return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace rondo
