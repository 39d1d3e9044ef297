#include "rondo/launch/process_count.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/launch/cpu_binding.h"
#include "rondo/launch/cpu_quota.h"
#include "rondo/launch/devices.h"

namespace rondo::launch {
namespace {

constexpr long long kMostProcesses = 1'000'000;

}  // namespace

int usable_processors() {
  const int cores = std::max(1, static_cast<int>(cpu_layout().cores.size()));
  const auto quota = cpu_quota();
  return quota ? std::clamp(static_cast<int>(*quota), 1, cores) : cores;
}

int process_count(const std::string& text, const std::string& flag) {
  if (text == "cpu") return usable_processors();
  const int gpus = gpu_count();
  if (text == "auto") return gpus > 0 ? gpus : usable_processors();
  if (text == "gpu") {
    if (gpus == 0)
      throw UsageError(str(flag, " gpu: no GPU is visible (/dev/nvidia*, CUDA_VISIBLE_DEVICES)"));
    return gpus;
  }
  if (text.empty() || text.find_first_not_of("-0123456789") != std::string::npos)
    throw UsageError(str(flag, " ", text, " is not a number, auto, cpu or gpu"));
  const long long count = parse_integer(text, flag);
  if (count < 1 || count > kMostProcesses) throw UsageError(str(flag, " ", text, " must be at least 1"));
  return static_cast<int>(count);
}

}  // namespace rondo::launch
