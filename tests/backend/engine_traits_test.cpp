// Traits of engines: rondo's own engines report them; others by registration or by ExtendedBackend.
#include "rondo/backend/engine/traits.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "rondo/backend/collectives.h"
#include "rondo/backend/gloo/factory.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/backend/nccl/factory.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "tests/backend/ranks.h"

namespace rondo::engine_traits_test {
namespace {

using testing::run_ranks;

BackendRequest alone() {
  BackendRequest request;
  request.world_ranks = {0};
  request.store = c10::make_intrusive<c10d::HashStore>();
  return request;
}

TEST(EngineTraits, OwnEnginesAnswerForEachCommunicator) {
  run_ranks(2, "native", [](Context& context) {
    const EngineTraits traits = context.world().traits();
    EXPECT_FALSE(traits.progresses_in_background);
    EXPECT_TRUE(traits.registered_memory);
    EXPECT_EQ(traits.parameters_in_place, registers_allocations());
    EXPECT_TRUE(traits.deterministic);
    EXPECT_EQ(traits.control_device(), at::kCPU);
    const Group other = context.new_group({1});
    if (context.rank() == 0) {
      EXPECT_THROW(other.traits(), UsageError);
    }
  });
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  run_ranks(2, "hierarchical(native, gloo)",
            [&](Context& context) {
              if (context.rank() == 0) {
                EXPECT_TRUE(context.world().traits().progresses_in_background);
                EXPECT_FALSE(context.world().traits().deterministic) << "sums are added by host";
                // Within a host the same name selects the native engine and its traits.
                EXPECT_FALSE(context.new_group({0}).traits().progresses_in_background);
              } else {
                EXPECT_FALSE(context.new_group({0}).member());
              }
            },
            std::chrono::seconds(60), {0, 1});
}

TEST(EngineTraits, OtherEnginesHaveRegisteredOrDefaultTraits) {
  EXPECT_EQ(kNcclTraits.control_device(), at::kCUDA);
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  EXPECT_EQ(make_communicator("gloo", alone()).traits, EngineTraits{.device_tensors = true});
  const BackendFactory gloo = [](const BackendRequest& request) { return make_backend("gloo", request); };
  register_backend("untold", gloo);
  EXPECT_EQ(make_communicator("untold", alone()).traits, EngineTraits{});
  register_backend("told", gloo, {.progresses_in_background = false, .device_tensors = true});
  const EngineTraits told = make_communicator("told", alone()).traits;
  EXPECT_FALSE(told.progresses_in_background);
  EXPECT_TRUE(told.device_tensors);
  run_ranks(2, "told", [](Context& context) {
    EXPECT_FALSE(context.world().traits().progresses_in_background);
    EXPECT_FALSE(context.new_group({1, 0}).traits().progresses_in_background);
  });
}

// Engines that add in the order of ranks are not wrapped; others only transfer the values to be added.
TEST(EngineTraits, DeterministicJobChecksTheEngine) {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  const BackendFactory gloo = [](const BackendRequest& request) {
    BackendRequest plain = request;
    plain.deterministic = false;
    return make_backend("gloo", plain);
  };
  register_backend("orderly", gloo, {.deterministic = true});
  register_backend("disorderly", gloo);
  for (const std::string name : {"orderly", "disorderly"}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    tests::run_rank_threads(2, [&](int rank) {
      const BackendRequest request{.group_name = name,
                                   .rank = rank,
                                   .size = 2,
                                   .world_ranks = {0, 1},
                                   .store = store,
                                   .deterministic = true};
      const Communicator made = make_communicator(name, request);
      EXPECT_TRUE(made.traits.deterministic) << name;
      EXPECT_EQ(extended(made.backend) != nullptr, name == "disorderly") << name;
    });
  }
}

// A third-party engine with extensions of c10d.
class CountingEngine final : public ExtendedBackend {
 public:
  using ExtendedBackend::ExtendedBackend;
  const std::string getBackendName() const override { return "counting"; }
  EngineTraits traits() const override { return {.deterministic = true}; }
  std::map<std::string, at::Tensor> memory() override { return {{"count", at::scalar_tensor(count_)}}; }
  std::string restore_memory(const std::map<std::string, at::Tensor>& memory) override {
    count_ = memory.at("count").item<std::int64_t>();
    return {};
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    ++count_;
    auto work = c10::make_intrusive<Done>();
    return work;
  }

 private:
  struct Done final : c10d::Work {
    bool wait(std::chrono::milliseconds) override { return true; }
  };
  std::int64_t count_ = 0;
};

// An engine with c10d's default for alltoall_base, which throws.
class ReducingEngine final : public c10d::Backend {
 public:
  explicit ReducingEngine(c10::intrusive_ptr<c10d::Backend> inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}
  const std::string getBackendName() const override { return "reducing"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    return inner_->allreduce(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return inner_->broadcast(tensors, options);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
};

// Exchanges rows with each other rank: rank r sends row r * 10 + i to rank i, i times.
void expect_rows_to_arrive(const Group& group) {
  const std::int64_t ranks = group.size(), rank = group.rank();
  std::vector<std::int64_t> sent, received(static_cast<std::size_t>(ranks), rank);
  std::vector<at::Tensor> rows, expected;
  for (std::int64_t other = 0; other < ranks; ++other) {
    sent.push_back(other);
    rows.push_back(at::full({other, 3}, rank * 10 + other, at::kLong));
    expected.push_back(at::full({rank, 3}, other * 10 + rank, at::kLong));
  }
  at::Tensor output = at::empty({rank * ranks, 3}, at::kLong);
  all_to_all_single(output, at::cat(rows), received, sent, group);
  EXPECT_TRUE(at::equal(output, at::cat(expected))) << "rank " << rank;
}

TEST(EngineTraits, DetectsSupportOfAllToAll) {
  register_backend("reducing", [](const BackendRequest& request) {
    return c10::make_intrusive<ReducingEngine>(make_backend("native", request));
  });
  register_backend("whole", [](const BackendRequest& request) { return make_backend("native", request); });
  for (const std::string engine : {"native", "whole", "reducing"}) {
    run_ranks(3, engine, [&](Context& context) {
      EXPECT_EQ(context.world().traits().all_to_all, engine != "reducing") << engine;
      EXPECT_EQ(context.new_group({2, 1, 0}).traits().all_to_all, engine != "reducing") << engine;
      expect_rows_to_arrive(context.world());
    });
  }
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  run_ranks(3, "gloo", [](Context& context) { expect_rows_to_arrive(context.world()); });
  run_ranks(3, "hierarchical(native, gloo)", [](Context& context) { expect_rows_to_arrive(context.world()); },
            std::chrono::seconds(60), {0, 0, 1});
}

TEST(EngineTraits, RefusesAllToAllWithWrongRowSums) {
  run_ranks(2, "native", [](Context& context) {
    at::Tensor output = at::empty({3, 2});
    EXPECT_THROW(all_to_all_single(output, at::ones({4, 2}), {1, 2}, {1, 2}, context.world()), UsageError);
    EXPECT_THROW(all_to_all_single(output, at::ones({3, 2}), {3}, {1, 2}, context.world()), UsageError);
  });
}

TEST(EngineTraits, AnEngineOfOthersMayAnswerItself) {
  const auto group_over = [](const c10::intrusive_ptr<c10d::Backend>& backend) {
    return Group("own", {0}, 0, backend, c10::make_intrusive<c10d::HashStore>());
  };
  const Group group = group_over(c10::make_intrusive<CountingEngine>(0, 1));
  EXPECT_TRUE(group.traits().deterministic);
  at::Tensor tensor = at::ones({3});
  all_reduce(tensor, group);
  all_reduce(tensor, group);
  const auto memory = group.extended()->memory();
  EXPECT_EQ(memory.at("count").item<std::int64_t>(), 2);
  const Group resumed = group_over(c10::make_intrusive<CountingEngine>(0, 1));
  EXPECT_EQ(resumed.extended()->restore_memory(memory), "");
  all_reduce(tensor, resumed);
  EXPECT_EQ(resumed.extended()->memory().at("count").item<std::int64_t>(), 3);
  // An engine's own traits override its registration.
  register_backend("counting", [](const BackendRequest& request) {
    return c10::make_intrusive<CountingEngine>(request.rank, request.size);
  });
  EXPECT_TRUE(make_communicator("counting", alone()).traits.deterministic);
}

}  // namespace
}  // namespace rondo::engine_traits_test
