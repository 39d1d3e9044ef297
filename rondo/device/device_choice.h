#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/channel/store.h"
#include "rondo/device/devices.h"

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

// The device of a rank as the others see it.
struct RankCard {
  std::string host = {};     // name of its host
  std::string card = {};     // the same text for ranks that use the same card; empty: the rank is on the CPU
  std::string refusal = {};  // why the rank has no device; empty: it has one

  bool operator==(const RankCard&) const = default;
};

// Chooses a rank's device.
struct DeviceRequest {
  std::string name = "cpu";  // env/device_name.h
  VisibleDevices visible = {};
  std::string host = {};  // name of this host
  int local_rank = 0;
  int local_world_size = 1;
  int rank = 0;
  int world_size = 1;
  std::function<std::string(c10::Device)> card_of = {};  // the physical card behind a device
};

// A rank's device, and the cards of all ranks.
struct DeviceChoice {
  c10::Device device = c10::kCPU;
  std::vector<RankCard> cards = {};  // by rank; empty where no rank can have a card
};

// Chooses this rank's device (device_choice.h) and tells the other ranks. Collective where libtorch is a CUDA
// build and `name` is not cpu, and where it is sim. Blocks up to `timeout` for each rank. Throws UsageError
// as choose_device() does: on all ranks, naming the first one that has no device; TimeoutError naming a rank
// that announces none.
DeviceChoice agree_on_device(const DeviceRequest& request, Store& store, Duration timeout);

// Returns whether there are several ranks and each has a card that no other rank uses.
bool have_own_cards(const std::vector<RankCard>& cards);

// Describes the first host whose ranks share cards: "4 ranks of host node1 share 2 cards"; empty: none do.
std::string shared_cards(const std::vector<RankCard>& cards);

}  // namespace rondo
