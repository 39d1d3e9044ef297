#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "rondo/base/time.h"

namespace rondo {

// The CUDA devices that libtorch offers to this process.
struct VisibleDevices {
  bool cuda_build = false;  // libtorch is a CUDA build
  int cuda = 0;             // number of devices
  std::string refusal{};    // why libtorch's CUDA library cannot be used although there are cards
};

// Number of devices of a type that libtorch sees; 0 where it does not know the type. Loads libtorch's CUDA
// library (load_cuda() in engine/cards.h, whose errors it throws) where CUDA's devices are asked for and the
// driver has some.
int device_count(c10::DeviceType type);

// Asks libtorch for CUDA devices, and loads its CUDA library where the driver has cards.
VisibleDevices visible_devices();

// Chooses the device that `name` (env/device_name.h) means for a rank: cuda is the device of the local rank,
// counted again from the first one where a host has more ranks than devices; sim likewise. Throws UsageError
// for a device that libtorch does not see or cannot use, and for cuda:N on a host with several ranks (sim:N
// is that device for all).
c10::Device choose_device(const std::string& name, const VisibleDevices& visible, int local_rank,
                          int local_world_size);

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

// Chooses this rank's device and tells the other ranks. Collective where libtorch is a CUDA build and `name`
// is not cpu, and where it is sim. Blocks up to `timeout`. Throws UsageError as choose_device() does: on all
// ranks, naming the first one that has no device.
DeviceChoice agree_on_device(const DeviceRequest& request, const c10::intrusive_ptr<c10d::Store>& store,
                             Duration timeout);

// Returns whether there are several ranks and each has a card that no other rank uses.
bool have_own_cards(const std::vector<RankCard>& cards);

// Describes the first host whose ranks share cards: "4 ranks of host node1 share 2 cards"; empty: none do.
std::string shared_cards(const std::vector<RankCard>& cards);

// Throws UsageError where `engine` is nccl and ranks share a card.
void check_cards(const std::string& engine, const std::vector<RankCard>& cards);

}  // namespace rondo
