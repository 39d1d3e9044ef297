// Choice of a rank's device and agreement of ranks about their cards, with simulated devices.
#include "rondo/device/device_choice.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/store.h"
#include "tests/errors.h"
#include "tests/rank_threads.h"

namespace rondo::device_choice_test {
namespace {

using testing::expect_facts;
using testing::message_of;

const VisibleDevices kCpuBuild = {};
const VisibleDevices kNoGpu = {.cuda_build = true};
const VisibleDevices kTwo = {.cuda_build = true, .cuda = 2};

c10::Device cuda(int index) { return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)}; }

TEST(DeviceChoice, FollowsTheNameAndTheLocalRank) {
  EXPECT_EQ(choose_device("cpu", kTwo, 1, 2), c10::Device(c10::kCPU));
  EXPECT_EQ(choose_device("auto", kCpuBuild, 0, 1), c10::Device(c10::kCPU));
  EXPECT_EQ(choose_device("auto", kNoGpu, 0, 1), c10::Device(c10::kCPU));
  EXPECT_EQ(choose_device("auto", kTwo, 1, 2), cuda(1));
  EXPECT_EQ(choose_device("cuda", kTwo, 0, 1), cuda(0));
  EXPECT_EQ(choose_device("cuda", kTwo, 1, 2), cuda(1));
  EXPECT_EQ(choose_device("cuda", kTwo, 3, 4), cuda(1));  // two ranks per card
  EXPECT_EQ(choose_device("cuda:1", kTwo, 0, 1), cuda(1));
}

TEST(DeviceChoice, RefusesADeviceThatIsNotThere) {
  const auto message = [](const char* name, const VisibleDevices& visible, int ranks) {
    return message_of<UsageError>([&] { choose_device(name, visible, 0, ranks); });
  };
  expect_facts(message("cuda", kCpuBuild, 1), {"--device cuda", "CPU build", "--device cpu"});
  expect_facts(message("cuda:0", kCpuBuild, 1), {"--device cuda:0", "CPU build"});
  expect_facts(message("cuda", kNoGpu, 1), {"--device cuda", "no CUDA device", "CUDA_VISIBLE_DEVICES"});
  expect_facts(message("cuda:7", kTwo, 1), {"--device cuda:7", "2", "cuda:0 to cuda:1"});
  expect_facts(message("cuda:1", kTwo, 4), {"--device cuda:1", "4 ranks", "--device cuda"});
  expect_facts(message("tpu", kTwo, 1), {"--device tpu", "cuda:N"});
  const VisibleDevices broken = {.cuda_build = true, .refusal = "libnccl.so.2 is missing"};
  for (const char* name : {"auto", "cuda", "cuda:0"})
    expect_facts(message(name, broken, 1), {"--device", name, "libnccl.so.2 is missing"});
  EXPECT_EQ(choose_device("cpu", broken, 0, 1), c10::Device(c10::kCPU));
}

TEST(DeviceChoice, KnowsWhichRanksShareACard) {
  const std::vector<RankCard> own = {{"a", "card 0", ""}, {"a", "card 1", ""}, {"b", "card 0", ""}};
  EXPECT_TRUE(have_own_cards(own));
  EXPECT_EQ(shared_cards(own), "");
  EXPECT_FALSE(have_own_cards({}));
  EXPECT_FALSE(have_own_cards({{"a", "card 0", ""}}));                 // one rank does not communicate
  EXPECT_FALSE(have_own_cards({{"a", "card 0", ""}, {"a", "", ""}}));  // one is on the CPU
  EXPECT_EQ(shared_cards({{"a", "card 0", ""}, {"a", "", ""}, {"a", "", ""}}), "");

  const std::vector<RankCard> shared = {
      {"a", "card 0", ""}, {"b", "card 0", ""}, {"b", "card 1", ""}, {"b", "card 0", ""}};
  EXPECT_FALSE(have_own_cards(shared));
  expect_facts(shared_cards(shared), {"3 ranks", "host b", "2 cards", "card 0", "card 1"});
}

std::vector<c10::Device> cudas(std::initializer_list<int> indices) {
  std::vector<c10::Device> devices;
  for (const int index : indices) devices.push_back(cuda(index));
  return devices;
}

TEST(DeviceChoice, ReplicasOfSeveralRanksShareNoDevice) {
  const auto of_rank = [](int rank, int first) {
    return devices_of_replicas(cuda(first), {.local_rank = rank, .ranks = 2, .devices = 4}, 2);
  };
  EXPECT_EQ(of_rank(0, 0), cudas({0, 1}));
  EXPECT_EQ(of_rank(1, 1), cudas({2, 3}));
  EXPECT_EQ(of_rank(1, 0), cudas({0, 1})) << "the program has chosen another device";
  const RankOfHost alone{.local_rank = 0, .ranks = 1, .devices = 4};
  EXPECT_EQ(devices_of_replicas(cuda(1), alone, 3), cudas({1, 2, 3}));
  EXPECT_EQ(devices_of_replicas(c10::kCPU, {.local_rank = 1, .ranks = 2}, 2),
            (std::vector<c10::Device>{c10::kCPU, c10::kCPU}));
  EXPECT_EQ(devices_of_replicas(cuda(1), {.local_rank = 3, .ranks = 4, .devices = 2}, 1), cudas({1}));
}

TEST(DeviceChoice, RefusesMoreReplicasThanDevices) {
  for (const int rank : {0, 1, 2}) {
    const RankOfHost place{.local_rank = rank, .ranks = 3, .devices = 5};
    expect_facts(message_of<UsageError>([&] { devices_of_replicas(cuda(rank), place, 2); }),
                 {"3 ranks", "2 replicas", "6 devices", "is 5", "--replicas"});
  }
}

// Returns the choices of ranks of one host that see the devices of `visible`.
std::vector<DeviceChoice> agreed(int ranks, const std::string& name,
                                 const std::function<VisibleDevices(int rank)>& visible) {
  const auto store = std::make_shared<MemoryStore>();
  std::vector<DeviceChoice> choices(static_cast<std::size_t>(ranks));
  tests::run_rank_threads(ranks, [&](int rank) {
    choices[static_cast<std::size_t>(rank)] =
        agree_on_device({.name = name,
                         .visible = visible(rank),
                         .host = "node",
                         .local_rank = rank,
                         .local_world_size = ranks,
                         .rank = rank,
                         .world_size = ranks,
                         .card_of = [](c10::Device device) { return str("card ", device.str()); }},
                        *store, std::chrono::minutes(1));
  });
  return choices;
}

TEST(DeviceChoice, RanksTellEachOtherTheirCards) {
  const auto two = agreed(2, "cuda", [](int) { return kTwo; });
  EXPECT_EQ(two[0].device, cuda(0));
  EXPECT_EQ(two[1].device, cuda(1));
  EXPECT_EQ(two[0].cards, two[1].cards);
  EXPECT_TRUE(have_own_cards(two[0].cards));
  const auto four = agreed(4, "cuda", [](int) { return kTwo; });
  expect_facts(shared_cards(four[3].cards), {"4 ranks", "host node", "2 cards"});
  const auto mixed = agreed(2, "auto", [](int rank) { return rank == 0 ? kTwo : kNoGpu; });
  EXPECT_EQ(mixed[1].device, c10::Device(c10::kCPU));
  EXPECT_FALSE(have_own_cards(mixed[0].cards));
  EXPECT_TRUE(agreed(2, "cpu", [](int) { return kTwo; })[0].cards.empty());
  EXPECT_TRUE(agreed(2, "auto", [](int) { return kCpuBuild; })[0].cards.empty());
}

TEST(DeviceChoice, AllRanksNameRankWithoutDevice) {
  const auto store = std::make_shared<MemoryStore>();
  std::vector<std::string> messages(3);
  tests::run_rank_threads(3, [&](int rank) {
    messages[static_cast<std::size_t>(rank)] = message_of<UsageError>([&] {
      agree_on_device({.name = "cuda",
                       .visible = rank == 1 ? kNoGpu : kTwo,
                       .host = str("node", rank),
                       .local_rank = 0,
                       .local_world_size = 1,
                       .rank = rank,
                       .world_size = 3,
                       .card_of = [](c10::Device device) { return device.str(); }},
                      *store, std::chrono::minutes(1));
    });
  });
  for (const std::string& message : messages) expect_facts(message, {"rank 1", "node1", "no CUDA device"});
}

TEST(DeviceChoice, NamesTheRankThatAnnouncesNoDevice) {
  const auto store = std::make_shared<MemoryStore>();
  try {
    agree_on_device({.name = "cuda",
                     .visible = kTwo,
                     .host = "node",
                     .local_rank = 0,
                     .local_world_size = 2,
                     .rank = 0,
                     .world_size = 2,
                     .card_of = [](c10::Device device) { return device.str(); }},
                    *store, std::chrono::milliseconds(50));
    ADD_FAILURE() << "rank 1 told nothing";
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.ranks(), std::vector<int>{1});
    expect_facts(error.what(), {"rank 1", "its device", "50 ms"});
  }
}

}  // namespace
}  // namespace rondo::device_choice_test
