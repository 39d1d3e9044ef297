#include "rondo/device/device_choice.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/channel/store.h"
#include "rondo/env/device_name.h"

namespace rondo {
namespace {

// Returns the accelerator that tests simulate, if the program has loaded it.
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

namespace {

std::string device_key(int rank) { return str("device/", rank); }

std::string card_text(const RankCard& card) {
  return nlohmann::json{{"host", card.host}, {"card", card.card}, {"refusal", card.refusal}}.dump();
}

RankCard card_from(const std::string& text, int rank) {
  const std::string source = str("the device of rank ", rank);
  const nlohmann::json json = parse_json_strict(text, source);
  const auto member = [&](const char* key) {
    return json_text(json_member(json, key, source), json_place(source, key));
  };
  return {.host = member("host"), .card = member("card"), .refusal = member("refusal")};
}

struct HostCards {
  std::string host;
  int ranks = 0;
  std::set<std::string> cards = {};
};

// Returns the ranks with a card, and their cards, by host.
std::vector<HostCards> cards_by_host(const std::vector<RankCard>& cards) {
  std::vector<HostCards> hosts;
  for (const RankCard& each : cards) {
    if (each.card.empty()) continue;
    auto host = std::find_if(hosts.begin(), hosts.end(),
                             [&](const HostCards& known) { return known.host == each.host; });
    if (host == hosts.end()) host = hosts.insert(hosts.end(), HostCards{.host = each.host});
    ++host->ranks;
    host->cards.insert(each.card);
  }
  return hosts;
}

const HostCards* sharing_host(const std::vector<HostCards>& hosts) {
  const auto found = std::find_if(hosts.begin(), hosts.end(), [](const HostCards& host) {
    return host.ranks > static_cast<int>(host.cards.size());
  });
  return found == hosts.end() ? nullptr : &*found;
}

}  // namespace

DeviceChoice agree_on_device(const DeviceRequest& request, Store& store, Duration timeout) {
  const auto choose = [&] {
    return choose_device(request.name, request.visible, request.local_rank, request.local_world_size);
  };
  const std::string kind = parse_device_name(request.name, "--device").kind;
  const bool on_accelerator = kind == "sim" || (kind != "cpu" && request.visible.cuda_build);
  if (request.world_size == 1 || !on_accelerator) return {.device = choose()};
  DeviceChoice choice;
  RankCard own{.host = request.host};
  try {
    choice.device = choose();
    if (choice.device.is_cuda()) own.card = request.card_of(choice.device);
    if (choice.device.is_privateuseone()) own.card = choice.device.str();
  } catch (const UsageError& error) {
    own.refusal = error.what();
  }
  store.set(device_key(request.rank), card_text(own));
  for (int rank = 0; rank < request.world_size; ++rank)
    choice.cards.push_back(
        card_from(value_of_rank(store, device_key(rank), rank, "its device", timeout), rank));
  for (int rank = 0; rank < request.world_size; ++rank) {
    const RankCard& card = choice.cards[static_cast<std::size_t>(rank)];
    if (!card.refusal.empty()) throw UsageError(str("rank ", rank, " on ", card.host, ": ", card.refusal));
  }
  return choice;
}

bool have_own_cards(const std::vector<RankCard>& cards) {
  return cards.size() > 1 &&
         std::none_of(cards.begin(), cards.end(), [](const RankCard& each) { return each.card.empty(); }) &&
         sharing_host(cards_by_host(cards)) == nullptr;
}

std::string shared_cards(const std::vector<RankCard>& cards) {
  const std::vector<HostCards> hosts = cards_by_host(cards);
  const HostCards* const host = sharing_host(hosts);
  if (host == nullptr) return {};
  return str(host->ranks, " ranks of host ", host->host, " share ", host->cards.size(),
             host->cards.size() == 1 ? " card (" : " cards (",
             join(std::vector<std::string>(host->cards.begin(), host->cards.end()), ", "), ")");
}

}  // namespace rondo
