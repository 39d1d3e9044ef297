#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "rondo/device/visible_devices.h"

namespace rondo {

// Chooses the device that `name` (env/device_name.h) means for a rank: cuda is the device of the local rank,
// counted again from the first one where a host has more ranks than devices; sim likewise. Throws UsageError
// for a device that libtorch does not see or cannot use, and for cuda:N on a host with several ranks (sim:N
// is that device for all).
c10::Device choose_device(const std::string& name, const VisibleDevices& visible, int local_rank,
                          int local_world_size);

// The place of a rank among those that share the devices of its host.
struct RankOfHost {
  int local_rank = 0;
  int ranks = 1;    // of the host
  int devices = 0;  // of the host, of the type in question
};

// Returns the devices of a rank with `count` replicas, each with a device of its own; `own` is the device
// that the rank was given. On a host with several ranks, local rank r has the devices from r * count on where
// `own` is the one that choose_device() deals to r, so that no two ranks share one; else, and for a rank
// alone on its host, they begin with `own`. All replicas of a rank on the CPU are there. Throws UsageError
// that names both counts where the host has fewer devices than such ranks have replicas.
std::vector<c10::Device> devices_of_replicas(c10::Device own, const RankOfHost& place, int count);

}  // namespace rondo
