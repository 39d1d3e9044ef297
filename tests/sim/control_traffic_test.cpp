// Numbers and objects that ranks exchange besides gradients. They are on the CPU, which NCCL does not
// support. nccl_test.cpp tests a training's own messages, tests/integration/sim_test.py those of programs.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <nlohmann/json.hpp>

#include "rondo/backend/collectives.h"
#include "rondo/profile/link_profile.h"
#include "rondo/train/agreement.h"
#include "rondo/train/clock_reading.h"
#include "tests/sim/ranks.h"
#include "tests/sim/training.h"

namespace rondo::sim::control_traffic_test {
namespace {

int over_nccl(const std::function<void(Context&)>& body, const std::vector<std::string>& hosts = {}) {
  const auto with_device = [&](Context& context) {
    // Creates the devices' communicator.
    at::Tensor sum = at::ones({2}, at::TensorOptions().device(device(context.rank())));
    all_reduce(sum, context.world());
    EXPECT_EQ(sum.cpu()[0].item<float>(), 2);
    body(context);
  };
  return run_ranks(2, with_device, "nccl", hosts);
}

TEST(SimControlTraffic, ObjectsOfRanks) {
  const auto body = [](Context& context) {
    const std::vector<nlohmann::json> all = all_gather_object({{"rank", context.rank()}}, context.world());
    EXPECT_EQ(all[1]["rank"], 1);
    const nlohmann::json own = context.rank() == 1 ? "told" : "";
    EXPECT_EQ(broadcast_object(own, context.world(), 1), "told");
  };
  EXPECT_EQ(over_nccl(body), 0);
}

TEST(SimControlTraffic, ValuesOfReplicas) {
  const auto body = [](Context& context) {
    const auto strategy = strategy_of({}, context);
    for (const c10::Device where : {c10::Device(c10::kCPU), device(context.rank())}) {
      // Rank r has r + 1 values of r + 1.
      const double own = context.rank() + 1;
      const at::Tensor values =
          at::full({context.rank() + 1}, own, at::TensorOptions(at::kFloat).device(where));
      EXPECT_NEAR(strategy->reduce(ReduceOp::AVG, values, 0).item<double>(), 5.0 / 3, 1e-6) << where;
      EXPECT_EQ(strategy->reduce(ReduceOp::SUM, values.sum()).item<double>(), 5) << where;
      EXPECT_TRUE(at::equal(strategy->gather(values, 0).cpu(), at::tensor({1.F, 2.F, 2.F}))) << where;
    }
  };
  EXPECT_EQ(over_nccl(body), 0);
}

TEST(SimControlTraffic, RequestsToStop) {
  const auto body = [](Context& context) {
    const auto strategy = strategy_of({}, context);
    const std::function<bool()> requested = [&] { return context.rank() == 1; };
    EXPECT_TRUE(stop_on_any(*strategy, requested));
    EXPECT_TRUE(StopAgreement(*strategy, requested).after(0));
  };
  EXPECT_EQ(over_nccl(body), 0);
}

// Ranks of several hosts exchange the identity of their clocks.
TEST(SimControlTraffic, ClocksOfSeveralHosts) {
  const auto body = [](Context& context) {
    EXPECT_EQ(context.local_world_size(), 1);
    const ClockReading reading = read_clock(context);
    EXPECT_EQ(reading.ahead_ns, 0);  // one kernel has one clock
  };
  EXPECT_EQ(over_nccl(body, {"first", "second"}), 0);
}

TEST(SimControlTraffic, ProfilesOfLinks) {
  const auto body = [](Context& context) {
    LinkProfileOptions options{.largest = KiB(16), .runs = 1, .contention_runs = 1, .messages = true};
    for (const c10::Device where : {c10::Device(c10::kCPU), device(context.rank())}) {
      options.device = where;
      const std::int64_t launches = read_counts().launches;
      const cost::Link link = profile_link(context, options, [] {});
      EXPECT_GT(link.seconds(cost::Collective::all_reduce, 4096, 2), 0);
      EXPECT_GT(link.message_seconds(4096), 0);
      EXPECT_FALSE(link.parameters_in_place && !where.is_cpu());
      // Only tensors on the device measure the engine between devices.
      EXPECT_EQ(read_counts().launches > launches, !where.is_cpu());
    }
  };
  EXPECT_EQ(over_nccl(body), 0);
  EXPECT_EQ(run_ranks(2, body, "native"), 0);
}

TEST(SimControlTraffic, RowsOfPredictionsAndValidations) {
  const auto body = [](Context& context) {
    const Way way{.name = "rows", .strategy = "zero3"};
    const auto strategy = strategy_of(way, context);
    Trainer trainer(
        *strategy, [&] { return gpt(way); }, device(context.rank()));
    trainer.compile(testing::adamw());
    EXPECT_EQ(trainer.predict(*tokens(6), {.batch_size = 16}).size(0), kSamples);
    EXPECT_GT(trainer.evaluate(*tokens(6), {.batch_size = 16}).at("loss"), 0);
  };
  EXPECT_EQ(over_nccl(body), 0);
}

}  // namespace
}  // namespace rondo::sim::control_traffic_test
