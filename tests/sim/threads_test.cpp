// Threads that rondo starts for a rank use the rank's device.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>

#include "rondo/base/replica.h"
#include "rondo/device/devices.h"
#include "tests/sim/ranks.h"
#include "tests/sim/training.h"

namespace rondo::sim::threads_test {
namespace {

c10::Device device_of_libtorch() { return c10::impl::VirtualGuardImpl(c10::kPrivateUse1).getDevice(); }

// The devices of all threads that call it, except one thread.
class Seen {
 public:
  void note() {
    if (std::this_thread::get_id() == own_) return;
    const std::lock_guard lock(mutex_);
    indices_.insert(device_of_libtorch().index());
  }
  std::set<int> indices() const {
    const std::lock_guard lock(mutex_);
    return indices_;
  }

 private:
  const std::thread::id own_ = std::this_thread::get_id();
  mutable std::mutex mutex_;  // protects indices_
  std::set<int> indices_;
};

class WatchedTokens final : public Dataset {
 public:
  WatchedTokens(std::shared_ptr<const Dataset> data, Seen& seen) : data_(std::move(data)), seen_(seen) {}
  std::int64_t size() const override { return data_->size(); }
  Batch get(std::span<const std::int64_t> indices) const override {
    seen_.note();
    return data_->get(indices);
  }
  const DatasetInfo& info() const override { return data_->info(); }

 private:
  const std::shared_ptr<const Dataset> data_;
  Seen& seen_;
};

TEST(SimThreads, AThreadHasTheDeviceOfItsStarter) {
  EXPECT_EQ(
      run_ranks(1,
                [](Context& /*context*/) {
                  set_current_device(device(2));
                  std::thread([] { EXPECT_EQ(device_of_libtorch().index(), 0) << "one of others"; }).join();
                  replica_thread([] {
                    EXPECT_EQ(device_of_libtorch(), device(2));
                    EXPECT_EQ(current_device(), device(2));
                    replica_thread([] { EXPECT_EQ(device_of_libtorch(), device(2)); }).join();
                  }).join();
                }),
      0);
}

TEST(SimThreads, LoadersAndEnginesUseTheRanksDevice) {
  EXPECT_EQ(run_ranks(2,
                      [](Context& context) {
                        set_current_device(device(3));
                        Seen loaders, engines;
                        const Way way;
                        const auto strategy = strategy_of(way, context);
                        Trainer trainer(
                            *strategy, [&] { return gpt(way); }, device(3));
                        trainer.compile(testing::adamw());
                        trainer.fit(std::make_shared<WatchedTokens>(tokens(5), loaders),
                                    {.steps = 3, .batch_size = 4, .loader_threads = 2});
                        EXPECT_EQ(loaders.indices(), std::set<int>{3});

                        // Rank 1 joins later, so that the engine's own thread completes rank 0's operation.
                        if (context.rank() == 1) context.world().store()->wait({"rank 0 has started"});
                        std::vector<at::Tensor> tensors{at::ones({4})};
                        const auto work = context.world().backend()->allreduce(tensors, {});
                        const auto future = work->getFuture();
                        future->addCallback([&](c10::ivalue::Future&) { engines.note(); });
                        if (context.rank() == 0)
                          context.world().store()->set("rank 0 has started", std::string());
                        future->wait();
                        barrier(context.world());
                        if (context.rank() != 0) return;
                        EXPECT_EQ(engines.indices(), std::set<int>{3});
                      }),
            0);
}

TEST(SimThreads, ReplicasHaveDevicesOfTheirOwn) {
  EXPECT_EQ(run_ranks(1,
                      [](Context& context) {
                        Seen replicas;
                        const Way way{.name = "replicas",
                                      .strategy = "mirrored",
                                      .options = {{"devices", "sim:0,sim:2"}}};
                        const auto strategy = strategy_of(way, context);
                        Trainer trainer(
                            *strategy,
                            [&] {
                              Model model = gpt(way);
                              auto inner = model.forward;
                              model.forward = [inner, &replicas](const at::Tensor& input) {
                                replicas.note();
                                return inner.run({input}).front();
                              };
                              return model;
                            },
                            device(0));
                        trainer.compile(testing::adamw());
                        trainer.fit(tokens(5), {.steps = 1, .batch_size = 2, .loader_threads = 0});
                        EXPECT_EQ(replicas.indices(), std::set<int>{2});
                      }),
            0);
}

// Trains with two replicas per rank, and returns the devices of their inputs.
std::set<int> devices_of_two_replicas(Context& context, c10::Device own) {
  std::mutex mutex;  // protects indices
  std::set<int> indices;
  const Way way{.name = "workers", .strategy = "multi_worker_mirrored", .options = {{"replicas", "2"}}};
  const auto strategy = strategy_of(way, context);
  Trainer trainer(
      *strategy,
      [&] {
        Model model = gpt(way);
        auto inner = model.forward;
        model.forward = [inner, &mutex, &indices](const at::Tensor& input) {
          EXPECT_EQ(input.device(), current_device());
          EXPECT_EQ(input.device(), device_of_libtorch());
          const std::lock_guard lock(mutex);
          indices.insert(input.device().index());
          return inner.run({input}).front();
        };
        return model;
      },
      own);
  trainer.compile(testing::adamw());
  trainer.fit(tokens(5), {.steps = 1, .batch_size = 2, .loader_threads = 0});
  return indices;
}

TEST(SimThreads, ReplicasOfSeveralRanksHaveOwnDevices) {
  EXPECT_EQ(
      run_ranks(
          2,
          [](Context& context) {
            const int rank = context.rank();
            EXPECT_EQ(devices_of_two_replicas(context, device(rank)),
                      (std::set<int>{2 * rank, 2 * rank + 1}));
            EXPECT_EQ(devices_of_two_replicas(context, device(1 - rank)), (std::set<int>{1 - rank, 2 - rank}))
                << "the devices that the program has chosen";
          }),
      0);
}

}  // namespace
}  // namespace rondo::sim::threads_test
