// Trainings over the simulated NCCL with one device per rank, and its errors, which are NCCL's.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "rondo/backend/collectives.h"
#include "rondo/backend/engine/module.h"
#include "rondo/backend/registry.h"
#include "rondo/pipeline/schedule.h"
#include "tests/errors.h"
#include "tests/sim/ranks.h"
#include "tests/sim/training.h"

namespace rondo::sim::nccl_test {
namespace {

using testing::expect_facts;
using testing::message_of;

std::vector<Way> ways() {
  std::vector<Way> all = {
      {.name = "ddp", .clip_norm = 1},
      {.name = "ddp_with_checked_parameters", .options = {{"check-parameters-every", "2"}}},
      {.name = "zero1", .strategy = "zero1", .clip_norm = 1},
      {.name = "zero2", .strategy = "zero2", .accumulate = 2},
      {.name = "zero3", .strategy = "zero3", .checkpointed = "all"},
      {.name = "hsdp_one_copy", .strategy = "hsdp", .options = {{"shard-ranks", "2"}}},
      {.name = "random", .strategy = "random", .options = {{"strategy-seed", "7"}}},
      {.name = "local_sgd", .strategy = "local_sgd", .options = {{"sync-period", "2"}}},
      {.name = "multi_worker_mirrored", .strategy = "multi_worker_mirrored"},
      {.name = "tensor", .dimension = "tensor"},
      {.name = "expert", .dimension = "expert", .experts = 4},
      {.name = "context", .dimension = "context", .checkpointed = "all"},
  };
  for (const std::string& schedule : pipeline::schedule_names()) {
    all.push_back({.name = "pipeline_" + schedule,
                   .options = {{"pipeline-schedule", schedule}, {"micro-batches", "4"}},
                   .dimension = "pipeline",
                   .accumulate = 2,
                   .clip_norm = 1});
  }
  return all;
}

class OverNccl : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(OnSim, OverNccl, ::testing::ValuesIn(ways()),
                         [](const ::testing::TestParamInfo<Way>& info) { return info.param.name; });

TEST_P(OverNccl, TrainsAsOnTheCpu) {
  const auto body = [](Context& context) { expect_as_on_cpu(context, GetParam(), {device(context.rank())}); };
  EXPECT_EQ(run_ranks(2, body, "nccl"), 0);
}

// Messages have two neighbours, and ranks reach their first messages at different times.
TEST(SimNccl, PipelinesAndRingsTrainAsOnTheCpu) {
  const std::vector<Way> ways = {
      {.name = "pipeline_of_three",
       .options = {{"pipeline-schedule", "1f1b"}, {"micro-batches", "4"}},
       .dimension = "pipeline"},
      // A rank has the first and the last part of a sequence.
      {.name = "context_of_four", .dimension = "context"},
  };
  for (const Way& way : ways) {
    const auto body = [&](Context& context) { expect_as_on_cpu(context, way, {device(context.rank())}); };
    EXPECT_EQ(run_ranks(way.name == "context_of_four" ? 4 : 3, body, "nccl"), 0) << way.name;
  }
}

// Trains in the ways of TensorFlow's NcclAllReduce and CommunicationImplementation.NCCL. The reference is the
// CPU without NCCL, which does not support it.
void expect_as_without_nccl(Context& context, const Way& way, const OptionValues& on_cpu) {
  Way plain = way;
  plain.options = on_cpu;
  const Figures wanted = train(context, plain, c10::kCPU);
  expect_near(context, train(context, way, {device(context.rank())}), wanted, way);
}

TEST(SimNccl, ReplicasOfAProcessAddUpTheirGradients) {
  for (const std::string packs : {"0", "1", "3"}) {
    const Way way{
        .name = "mirrored_nccl_in_" + packs + "_packs",
        .strategy = "mirrored",
        .options = {{"devices", "sim:0,sim:1"}, {"cross-device-ops", "nccl"}, {"mirrored-num-packs", packs}},
        .clip_norm = 1};
    const auto body = [&](Context& context) { expect_as_without_nccl(context, way, {{"replicas", "2"}}); };
    EXPECT_EQ(run_ranks(1, body), 0) << way.name;
  }
}

TEST(SimNccl, WorkersAddUpTheirGradients) {
  const Way one{.name = "workers_nccl",
                .strategy = "multi_worker_mirrored",
                .options = {{"mwm-implementation", "nccl"}},
                .accumulate = 2,
                .clip_norm = 1};
  EXPECT_EQ(run_ranks(
                2, [&](Context& context) { expect_as_without_nccl(context, one, {}); }, "nccl"),
            0);
  const auto several = [](Context& context) {
    const Way two{.name = "workers_of_two_replicas_nccl",
                  .strategy = "multi_worker_mirrored",
                  .options = {{"mwm-implementation", "nccl"}, {"replicas", "2"}}};
    expect_as_without_nccl(context, two, {{"replicas", "2"}});
  };
  EXPECT_EQ(run_ranks(2, several, "nccl"), 0);
}

TEST(SimNccl, RefusesTwoRanksOnOneDevice) {
  const auto body = [](Context& context) {
    at::Tensor tensor = at::ones({2}, at::TensorOptions().device(device(1)));
    expect_facts(message_of([&] { all_reduce(tensor, context.world()); }), {"rank 0", "rank 1", "sim:1"});
  };
  EXPECT_EQ(run_ranks(2, body, "nccl"), 0);
}

// Runs the engine itself, as a communicator of two ranks.
int on_communicator(const std::function<void(c10d::Backend&, int rank)>& body) {
  const TemporaryDirectory directory;
  return tests::run_rank_processes(2, [&](Store& /*meeting*/, int rank) {
    BackendRequest request;
    request.group_name = "two";
    request.rank = rank;
    request.size = 2;
    request.world_ranks = {0, 1};
    request.store = c10::make_intrusive<c10d::FileStore>((directory / "store").string(), 2);
    request.timeout = std::chrono::seconds(60);
    request.make = make_communicator;
    body(*load_backend(kModule, "nccl").factory(request), rank);
  });
}

at::Tensor value_on(int rank, float value) {
  return at::full({3}, value, at::TensorOptions().dtype(at::kFloat).device(device(rank)));
}

TEST(SimNccl, TensorsOfTheHostAreRefused) {
  const auto body = [](c10d::Backend& nccl, int /*rank*/) {
    std::vector<at::Tensor> tensors{at::ones({2})};
    expect_facts(message_of([&] { nccl.allreduce(tensors, {}); }), {"Tensors must be CUDA"});
  };
  EXPECT_EQ(on_communicator(body), 0);
}

TEST(SimNccl, CrossingSendsOutsideAGroupDeadlock) {
  const auto body = [](c10d::Backend& nccl, int rank) {
    const auto exchange = [&](bool grouped) {
      std::vector<at::Tensor> to{value_on(rank, static_cast<float>(rank))}, from{value_on(rank, 7)};
      if (grouped) nccl.startCoalescing();
      const auto send = nccl.send(to, 1 - rank, 0);
      const auto receive = nccl.recv(from, 1 - rank, 0);
      if (grouped) nccl.endCoalescing()->wait();
      send->wait();
      receive->wait();
      EXPECT_EQ(from[0].cpu()[0].item<float>(), static_cast<float>(1 - rank));
    };
    exchange(/*grouped=*/true);
    expect_facts(message_of([&] { exchange(/*grouped=*/false); }), {"deadlock", "rank 0", "rank 1"});
  };
  EXPECT_EQ(on_communicator(body), 0);
}

TEST(SimNccl, TagsAreIgnored) {
  const auto body = [](c10d::Backend& nccl, int rank) {
    std::vector<at::Tensor> one{value_on(rank, 1)}, two{value_on(rank, 2)};
    if (rank == 0) {
      nccl.send(one, 1, /*tag=*/5)->wait();
      nccl.send(two, 1, /*tag=*/6)->wait();
    } else {
      // In reverse order: messages still arrive in the order of the sends.
      nccl.recv(two, 0, /*tag=*/6)->wait();
      nccl.recv(one, 0, /*tag=*/5)->wait();
      EXPECT_EQ(two[0].cpu()[0].item<float>(), 1);
      EXPECT_EQ(one[0].cpu()[0].item<float>(), 2);
    }
  };
  EXPECT_EQ(on_communicator(body), 0);
}

}  // namespace
}  // namespace rondo::sim::nccl_test
