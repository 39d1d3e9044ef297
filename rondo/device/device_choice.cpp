#include "rondo/device/device_choice.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/device_name.h"

namespace rondo {
namespace {

// The accelerator that a program's tests simulate, if the program has loaded it.
c10::Device simulated_device(const std::string& text, const DeviceName& name, int local_rank) {
  const int count = device_count(c10::kPrivateUse1);
  if (count == 0) throw UsageError(str("device ", text, ": this program has not loaded a simulated device"));
  const int index = name.index.value_or(local_rank % count);
  if (index >= count) {
    throw UsageError(str("--device ", text, ": the simulated accelerator has sim:0 to sim:", count - 1,
                         "; RONDO_SIM_DEVICES sets their number"));
  }
  return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace

c10::Device choose_device(const std::string& text, const VisibleDevices& visible, int local_rank,
                          int local_world_size) {
  const DeviceName name = parse_device_name(text, "--device");
  if (name.kind == "sim") return simulated_device(text, name, local_rank);
  if (name.kind == "cpu") return c10::kCPU;
  if (!visible.refusal.empty()) throw UsageError(str("--device ", text, ": ", visible.refusal));
  if (name.kind == "auto" && visible.cuda == 0) return c10::kCPU;
  if (visible.cuda == 0) {
    throw UsageError(
        str("--device ", text, ": ",
            visible.cuda_build
                ? "libtorch sees no CUDA device on this host (is there a GPU, its driver, and does "
                  "CUDA_VISIBLE_DEVICES name it?)"
                : "this libtorch is a CPU build, without CUDA",
            "; use --device cpu or auto"));
  }
  if (!name.index) return {c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank % visible.cuda)};
  if (*name.index >= visible.cuda) {
    throw UsageError(str("--device ", text, ": the number of CUDA devices that libtorch sees is ",
                         visible.cuda, "; expected cuda:0 to cuda:", visible.cuda - 1));
  }
  if (local_world_size > 1) {
    throw UsageError(str("--device ", text, " names one device, and this host has ", local_world_size,
                         " ranks; --device cuda gives each rank the device of its local rank"));
  }
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(*name.index)};
}

std::vector<c10::Device> devices_of_replicas(c10::Device own, const RankOfHost& place, int count) {
  std::vector<c10::Device> devices(static_cast<std::size_t>(count), own);
  if (own.is_cpu()) return devices;
  const int there = place.devices;
  int first = std::max<int>(0, own.index());
  if (count > 1 && place.ranks > 1 && there > 0 && first == place.local_rank % there) {
    if (place.ranks * count > there) {
      const std::string kind = c10::DeviceTypeName(own.type());
      throw UsageError(str("the ", place.ranks, " ranks of this host have ", count,
                           " replicas each, every one on a ", kind, " device of its own: that takes ",
                           place.ranks * count, " devices, and the number of ", kind,
                           " devices that libtorch sees is ", there,
                           "; start fewer ranks, or give fewer --replicas, or --device cpu"));
    }
    first = place.local_rank * count;
  }
  for (int replica = 0; replica < count; ++replica) {
    devices[static_cast<std::size_t>(replica)] =
        c10::Device(own.type(), static_cast<c10::DeviceIndex>(first + replica));
  }
  return devices;
}

}  // namespace rondo
