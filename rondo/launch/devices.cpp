#include "rondo/launch/devices.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "rondo/base/text.h"

namespace rondo::launch {

int gpu_count() {
  int devices = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename();
    const bool is_gpu = name.starts_with("nvidia") && name.size() > 6 &&
                        name.find_first_not_of("0123456789", 6) == std::string::npos;
    if (is_gpu) ++devices;
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return devices;
  int allowed = 0;
  for (const std::string& device : split(visible, ',')) {
    if (device.empty() || device.starts_with("-")) break;  // CUDA stops at the first one that is not valid
    ++allowed;
  }
  return std::min(devices, allowed);
}

}  // namespace rondo::launch
