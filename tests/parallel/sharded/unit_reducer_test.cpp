#include "rondo/parallel/sharded/unit_reducer.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <latch>
#include <optional>
#include <thread>

#include "rondo/base/error.h"
#include "tests/parallel/ranks.h"

namespace rondo::testing::unit_reducer_test {
namespace {

constexpr std::size_t kFirst = 0, kMiddle = 1, kLast = 2;  // units in the order of forward

// Defers gradients of unit "last" until a call waits for them, which any policy may do.
class KeepsLastBack final : public SchedulePolicy {
 public:
  std::string name() const override { return "keeps last back"; }
  std::size_t next(std::span<const CommunicationSegment* const>) override { return 0; }
  bool allows(const CommunicationSegment& segment) const override { return segment.unit != "last"; }
};

// Three units of zero2, and their reducer, with at most two units in flight.
struct Rank {
  explicit Rank(Context& context)
      : environment(environment_of(context)),
        queue(std::make_unique<KeepsLastBack>(), {},
              std::make_unique<Leader>(context.new_group(context.world().ranks()), context.timeout())),
        announcement(context.world()) {
    environment.queue = &queue;
    environment.buffers = &buffers;
    for (const std::string name : {"first", "middle", "last"}) {
      const at::Tensor weight = at::zeros({8}, at::kDouble).set_requires_grad(true);
      groups.push_back({.unit = {.name = name, .parameters = {{name, weight}}}, .sharding = Sharding::zero2});
      units.push_back(std::make_unique<ShardedUnit>(groups.back().unit, Sharding::zero2, environment, 0));
      weight.mutable_grad() = at::full({8}, context.rank() + 1, at::kDouble);
    }
    reducer.emplace(units, groups, order, schedule, announcement, exposed_ns, context.world(),
                    UnitReducer::Options{.in_flight = 2, .in_background = true});
    reducer->begin_pass(/*synchronises=*/true, /*discards=*/false);
  }
  static UnitEnvironment environment_of(const Context& context) {
    UnitEnvironment environment;
    environment.shard_group = context.new_group(context.world().ranks());
    return environment;
  }
  bool under_way(std::size_t unit) const { return units[unit]->gradients_under_way(); }

  UnitEnvironment environment;
  BufferPool buffers;
  CommunicationQueue queue;
  std::vector<UnitGroup> groups;
  ShardedUnits units;
  UnitOrder order{3, 0};
  SegmentSchedule schedule{units, order, queue, std::nullopt, [](std::size_t) {}};
  StepAnnouncement announcement;
  std::int64_t exposed_ns = 0;
  std::optional<UnitReducer> reducer;
};

// The middle unit's gradients have arrived on rank 0, and rank 1 has not checked. If rank 0 therefore had
// room for the first unit, it could start that unit's gradients before the last unit's. Rank 1 launches the
// first unit only after the last unit's gradients are complete, so both ranks would wait for each other.
TEST(UnitReducer, RanksWaitForTheSameGradients) {
  std::latch both_sent(1);
  CommunicationQueue* queue_of_1 = nullptr;
  const auto body = [&](Context& context) {
    Rank rank(context);
    rank.reducer->complete(kLast);
    if (context.rank() == 1) {
      rank.reducer->complete(kMiddle);
      queue_of_1 = &rank.queue;
      both_sent.count_down();
    } else {
      both_sent.wait();
      const TimePoint patience = Clock::now() + std::chrono::minutes(5);
      do {
        rank.reducer->complete(kMiddle);
        std::this_thread::yield();
      } while (rank.under_way(kMiddle) && Clock::now() < patience);
      ASSERT_FALSE(rank.under_way(kMiddle));
      ASSERT_TRUE(rank.under_way(kLast));
    }
    rank.reducer->complete(kFirst);
    if (rank.under_way(kLast)) {
      // Submits a segment that ends rank 1's waiting, in place of the one that rank 1 cannot send.
      if (context.rank() == 0)
        queue_of_1->submit({.start = []() -> BucketFuture { throw Error("the ranks wait for each other"); }});
      throw Error("the first unit's gradients were sent while two units' were on their way elsewhere");
    }
    for (const std::size_t unit : {kLast, kMiddle, kFirst}) {
      rank.reducer->finish(unit);
      rank.units[unit]->install_gradients({});
      const at::Tensor gradient = rank.units[unit]->optimized().front().tensor.grad();
      EXPECT_TRUE(at::equal(gradient, at::full_like(gradient, 1.5))) << unit;
    }
  };
  // Gloo alone does not report that a reduce-scatter has completed.
  run_ranks(2, "hierarchical(native, gloo)", body, std::chrono::seconds(60), /*hosts=*/{0, 1});
}

}  // namespace
}  // namespace rondo::testing::unit_reducer_test
