#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/channel/store.h"
#include "rondo/device/devices.h"

namespace rondo {

// Returns the device that `name` (env/device_name.h) means for a rank: for cuda, and likewise for sim, the
// device of the local rank, modulo the number of devices. Throws UsageError for a device that libtorch does
// not see or cannot use, and for cuda:N on a host with several ranks (sim:N is that device for all).
c10::Device choose_device(const std::string& name, const VisibleDevices& visible, int local_rank,
                          int local_world_size);

// The position of a rank among those that share the devices of its host.
struct RankOfHost {
  int local_rank = 0;
  int ranks = 1;    // number of ranks of the host
  int devices = 0;  // number of devices of the host of this type
};

// Returns the devices of a rank with `count` replicas, each with a device of its own; `own` is the device of
// the rank. On a host with several ranks, local rank r gets the devices from r * count on if `own` is the
// device that choose_device() assigns to r, so that no two ranks share one; otherwise, and for a rank alone
// on its host, the devices begin with `own`. For a rank on the CPU all are the CPU. Throws UsageError that
// names both counts if the host has fewer devices than such ranks have replicas.
std::vector<c10::Device> devices_of_replicas(c10::Device own, const RankOfHost& place, int count);

// The device of a rank, as published to the others.
struct RankCard {
  std::string host = {};     // name of its host
  std::string card = {};     // equal for ranks that use the same card; empty: on the CPU
  std::string refusal = {};  // reason why the rank has no device; empty: it has one

  bool operator==(const RankCard&) const = default;
};

// Input of agree_on_device().
struct DeviceRequest {
  std::string name = "cpu";  // env/device_name.h
  VisibleDevices visible = {};
  std::string host = {};  // name of this host
  int local_rank = 0;
  int local_world_size = 1;
  int rank = 0;
  int world_size = 1;
  std::function<std::string(c10::Device)> card_of = {};  // returns the physical card of a device
};

// A rank's device, and the cards of all ranks.
struct DeviceChoice {
  c10::Device device = c10::kCPU;
  std::vector<RankCard> cards = {};  // by rank; empty if no rank can have a card
};

// Chooses this rank's device (choose_device()) and publishes it to the other ranks. Collective if libtorch is
// a CUDA build and `name` is not cpu, and if `name` is sim. Blocks up to `timeout` for each rank. Throws
// UsageError as choose_device() does, on all ranks, naming the first one without a device, and TimeoutError
// naming a rank that publishes none.
DeviceChoice agree_on_device(const DeviceRequest& request, Store& store, Duration timeout);

// Returns whether there are several ranks and each has a card that no other rank uses.
bool have_own_cards(const std::vector<RankCard>& cards);

// Describes the first host whose ranks share cards: "4 ranks of host node1 share 2 cards"; empty if none do.
std::string shared_cards(const std::vector<RankCard>& cards);

}  // namespace rondo
