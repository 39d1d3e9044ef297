#include "apps/train/simulated_device.h"

#include "rondo/backend/card_engine.h"
#include "rondo/base/error.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/env/device_name.h"

namespace rondo {

void load_simulated_device(const std::string& device) {
  if (parse_device_name(device, "--device").kind != "sim") return;
  const std::string module = find_module("rondo_sim.so");
  if (module.empty()) {
    throw UsageError(str("--device ", device,
                         ": the simulated accelerator is a part of rondo's tests, and these programs were "
                         "installed or built without them; use --device cpu, cuda or auto, or a program of a "
                         "build folder with RONDO_BUILD_TESTS=ON"));
  }
  replace_card_engine(module);
}

}  // namespace rondo
