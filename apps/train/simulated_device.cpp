#include "apps/train/simulated_device.h"

#include <filesystem>

#include "rondo/backend/card_engine.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/device_name.h"

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
  if (parse_device_name(device, "--device").kind != "sim") return;
  const std::filesystem::path module = simulated_device_module();
  if (module.empty()) {
    throw UsageError(str("--device ", device,
                         ": the simulated accelerator is a part of rondo's tests, and these programs were "
                         "installed or built without them; use --device cpu, cuda or auto, or a program of a "
                         "build folder with RONDO_BUILD_TESTS=ON"));
  }
  replace_card_engine(module.string());
}

}  // namespace rondo
