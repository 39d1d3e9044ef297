// Two engines as one, and a group of one rank on a device. libtorch's "meta" stands for the device: its
// tensors have no memory, so reading them or copying them to the CPU fails.
#include "rondo/backend/nccl/combined_backend.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "rondo/backend/collectives.h"
#include "rondo/backend/point_to_point.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"

namespace rondo::two_engines_test {
namespace {

using testing::expect_facts;
using testing::message_of;
using testing::run_ranks;

class DoneWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

// An engine for devices: counts calls, and refuses CPU tensors as NCCL does.
class DeviceEngine final : public c10d::Backend {
 public:
  using c10d::Backend::Backend;
  using Tensors = std::vector<at::Tensor>;

  const std::string getBackendName() const override { return "device"; }
  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions&) override {
    return count(tensors);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions&) override {
    return count(tensors);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::AllgatherOptions&) override {
    count(outputs.front());
    return count(inputs, 0);
  }
  c10::intrusive_ptr<c10d::Work> send(Tensors& tensors, int, int) override { return count_message(tensors); }
  c10::intrusive_ptr<c10d::Work> recv(Tensors& tensors, int, int) override { return count_message(tensors); }
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override { group = 0; }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    groups.push_back(group.value());
    group.reset();
    return c10::make_intrusive<DoneWork>();
  }
  void shutdown() override { is_shut_down = true; }

  int calls = 0;
  bool is_shut_down = false;
  std::vector<int> groups;   // messages of each group
  std::optional<int> group;  // messages of the current group

 private:
  // Within a group NCCL returns no work for a call.
  c10::intrusive_ptr<c10d::Work> count_message(const Tensors& tensors) {
    const auto work = count(tensors);
    if (!group) return work;
    ++*group;
    return {};
  }
  c10::intrusive_ptr<c10d::Work> count(const Tensors& tensors, int calls_of_it = 1) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.is_cpu()) throw Error("tensors must be of a device");
    }
    calls += calls_of_it;
    return c10::make_intrusive<DoneWork>();
  }
};

at::Tensor on_device(std::int64_t elements) {
  return at::empty({elements}, at::TensorOptions(at::kFloat).device(at::kMeta));
}

// Ranks that use native for CPU tensors and a DeviceEngine for device tensors.
struct Ranks {
  explicit Ranks(Context& context, const CombinedBackend::CardOf& card_of = {})
      : device(c10::make_intrusive<DeviceEngine>(context.rank(), context.world_size())) {
    const Group& world = context.world();
    BackendRequest request;
    request.group_name = "pair";
    request.rank = world.rank();
    request.size = world.size();
    request.world_ranks = world.ranks();
    request.store = world.store();
    request.timeout = std::chrono::seconds(60);
    backend = c10::make_intrusive<CombinedBackend>(
        request, Communicator{world.backend(), world.traits()},
        Communicator{device, {.cpu_tensors = false, .device_tensors = true, .honours_tags = false}}, card_of);
    group = Group("pair", world.ranks(), world.rank(), backend, world.store());
  }

  c10::intrusive_ptr<DeviceEngine> device;
  c10::intrusive_ptr<CombinedBackend> backend;
  Group group;
};

TEST(CombinedBackend, TheDeviceOfTheTensorsChoosesTheEngine) {
  run_ranks(2, "native", [](Context& context) {
    Ranks ranks(context);
    at::Tensor count = at::full({1}, 1 + context.rank());
    all_reduce(count, ranks.group);
    EXPECT_EQ(count.item<std::int64_t>(), 3);
    EXPECT_EQ(broadcast_object({{"from", context.rank()}}, ranks.group).at("from"), 0);
    EXPECT_EQ(all_gather(at::full({2}, context.rank()), ranks.group).back().sum().item<std::int64_t>(), 2);
    barrier(ranks.group);
    EXPECT_EQ(ranks.device->calls, 0);

    at::Tensor gradient = on_device(5);
    all_reduce(gradient, ranks.group);
    broadcast(gradient, ranks.group);
    EXPECT_EQ(all_gather(gradient, ranks.group).size(), 2U);
    send(gradient, ranks.group, 1 - context.rank());
    EXPECT_EQ(ranks.device->calls, 4);

    std::vector<at::Tensor> mixed{at::zeros({5}), gradient};
    expect_facts(message_of<UsageError>([&] { ranks.backend->broadcast(mixed, {}); }),
                 {"broadcast", "cpu", "meta"});
    EXPECT_EQ(ranks.group.traits().control_device(), at::kCPU);
    EXPECT_TRUE(ranks.group.traits().device_tensors);
    EXPECT_TRUE(ranks.group.traits().progresses_in_background) << "as on the device";
    barrier(context.world());
    ranks.backend->close();
    EXPECT_TRUE(ranks.device->is_shut_down);
  });
}

TEST(CombinedBackend, RefusesAndNamesTwoRanksOnOneGpu) {
  run_ranks(3, "native", [](Context& context) {
    Ranks ranks(context, [&](c10::Device) { return context.rank() == 0 ? "card A" : "card B"; });
    at::Tensor gradient = on_device(5);
    for (int attempt = 0; attempt < 2; ++attempt) {
      expect_facts(message_of<UsageError>([&] { all_reduce(gradient, ranks.group); }),
                   {"rank 1 and rank 2 both use card B", "native"});
    }
    EXPECT_EQ(ranks.device->calls, 0);
    barrier(ranks.group);
  });
  run_ranks(2, "native", [](Context& context) {
    Ranks ranks(context, [&](c10::Device) { return context.rank() == 0 ? "card A" : "card B"; });
    at::Tensor gradient = on_device(5);
    send(gradient, ranks.group, 1 - context.rank());
    all_reduce(gradient, ranks.group);
    EXPECT_EQ(ranks.device->calls, 2);
    barrier(ranks.group);
  });
}

TEST(PeerExchange, GroupsMessagesOnDevicesOnly) {
  run_ranks(2, "native", [](Context& context) {
    Ranks ranks(context);
    const int peer = 1 - context.rank();
    EXPECT_TRUE(matches_by_order(ranks.group, c10::kMeta));
    EXPECT_FALSE(matches_by_order(ranks.group, c10::kCPU));
    EXPECT_FALSE(matches_by_order(context.world(), c10::kMeta));
    const auto exchange = [&](const at::Tensor& sent, const at::Tensor& received) {
      for (const auto& work : start_exchange(ranks.group, {{sent, peer, 1}, {sent, peer, 2}},
                                             {{received, peer, 2}, {received.narrow(0, 0, 0), peer, 3}}))
        work->wait();
    };
    exchange(on_device(5), on_device(5));
    EXPECT_EQ(ranks.device->groups, (std::vector<int>{3})) << "without what has no elements";

    // Matched by tag: the first message sent is received last.
    at::Tensor first = at::zeros({2}), second = at::zeros({2});
    for (const auto& work :
         start_exchange(ranks.group, {{at::full({2}, 1.0F), peer, 1}, {at::full({2}, 2.0F), peer, 2}},
                        {{second, peer, 2}}))
      work->wait();
    for (const auto& work : start_exchange(ranks.group, {}, {{first, peer, 1}})) work->wait();
    EXPECT_EQ(first[0].item<float>(), 1);
    EXPECT_EQ(second[0].item<float>(), 2);
    EXPECT_EQ(ranks.device->groups.size(), 1U);

    expect_facts(message_of<UsageError>([&] { exchange(at::zeros({5}), on_device(5)); }), {"cpu", "meta"});
    barrier(context.world());
  });
  run_ranks(2, "native", [](Context& context) {
    Ranks ranks(context, [](c10::Device) { return "card A"; });
    expect_facts(message_of<UsageError>([&] {
                   start_exchange(ranks.group, {{on_device(2), 1 - context.rank()}}, {});
                 }),
                 {"both use card A"});
    EXPECT_FALSE(ranks.device->group.has_value()) << "an error leaves no group begun";
    barrier(context.world());
  });
}

TEST(GroupOfOneRank, LeavesTensorsOfADeviceWhereTheyAre) {
  run_ranks(1, "native", [](Context& context) {
    const Group& group = context.world();
    at::Tensor tensor = on_device(6);
    all_reduce(tensor, group);
    all_reduce(tensor, group, ReduceOp::AVG);
    std::vector<at::Tensor> tensors{tensor};
    group.backend()->allreduce(tensors)->wait();
    group.backend()->allreduce_coalesced(tensors)->wait();
    broadcast(tensor, group);
    reduce(tensor, group);
    EXPECT_EQ(all_gather(tensor, group).front().device().type(), at::kMeta);
    EXPECT_EQ(gather(tensor, group).front().device().type(), at::kMeta);
    EXPECT_EQ(reduce_scatter(tensor, group).sizes(), tensor.sizes());
    at::Tensor output = on_device(6);
    scatter(output, {tensor}, group);
    all_to_all_single(output, tensor, {6}, {6}, group);
    at::Tensor all = on_device(6).view({1, 6});
    group.backend()->_allgather_base(all, tensor)->wait();
    group.backend()->_reduce_scatter_base(tensor, all)->wait();
    at::Tensor shorter = on_device(3);
    std::vector<at::Tensor> outputs{shorter};
    expect_facts(message_of<UsageError>([&] { group.backend()->alltoall(outputs, tensors)->wait(); }),
                 {"all_to_all", "6 elements", "3"});
  });
}

}  // namespace
}  // namespace rondo::two_engines_test
