// Devices and cards of a context's ranks; engines that the context shuts down.
#include <gtest/gtest.h>

#include <atomic>

#include "rondo/backend/card_engine.h"
#include "rondo/backend/context.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "rondo/device/devices.h"
#include "tests/errors.h"

namespace rondo::context_device_test {
namespace {

using testing::expect_facts;
using testing::message_of;

TEST(ContextDevice, RefusesNcclForRanksThatShareACard) {
  const std::vector<RankCard> own = {{"a", "card 0", ""}, {"a", "card 1", ""}, {"b", "card 0", ""}};
  EXPECT_NO_THROW(check_cards("nccl", own));
  const std::vector<RankCard> shared = {
      {"a", "card 0", ""}, {"b", "card 0", ""}, {"b", "card 1", ""}, {"b", "card 0", ""}};
  expect_facts(message_of<UsageError>([&] { check_cards("nccl", shared); }),
               {"--backend nccl", "3 ranks", "host b", "2 cards", "--backend native"});
  expect_facts(message_of<UsageError>([] {
                 check_cards("nccl", {{"a", "card 0", ""}, {"a", "card 0", ""}});
               }),
               {"2 ranks", "host a", "1 card"});
  EXPECT_NO_THROW(check_cards("native", shared));
}

TEST(ContextDevice, InitRefusesADeviceThatIsNotThere) {
  if (visible_devices().cuda_build) GTEST_SKIP() << "libtorch is a CUDA build";
  const auto try_device = [](const std::string& name) {
    return message_of<UsageError>([&] { init({.device = name, .init_method = "alone"}); });
  };
  expect_facts(try_device("cuda"), {"--device cuda", "CPU build"});
  expect_facts(try_device("cuda:3"), {"--device cuda:3", "CPU build"});
  expect_facts(try_device("gpu"), {"--device gpu", "cuda:N"});
  EXPECT_EQ(init({.device = "auto", .init_method = "alone"}).device(), c10::Device(c10::kCPU));
}

// A c10d engine that is not a rondo::ExtendedBackend.
class CountingBackend final : public c10d::Backend {
 public:
  CountingBackend(int rank, int size, std::atomic<int>& shut_down)
      : Backend(rank, size), shut_down_(shut_down) {}
  const std::string getBackendName() const override { return "counting"; }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions&) override { return done(); }
  void shutdown() override { ++shut_down_; }

 private:
  class Done final : public c10d::Work {
   public:
    bool isCompleted() override { return true; }
    bool wait(std::chrono::milliseconds) override { return true; }
  };
  static c10::intrusive_ptr<c10d::Work> done() { return c10::make_intrusive<Done>(); }
  std::atomic<int>& shut_down_;
};

TEST(Context, ShutdownReachesEveryEngineOnce) {
  std::atomic<int> shut_down = 0;
  register_backend("counting",
                   [&](const BackendRequest& request) {
                     return c10::make_intrusive<CountingBackend>(request.rank, request.size, shut_down);
                   },
                   {.all_to_all = false});
  Context context = init({.backend = "counting", .init_method = "alone"});
  const Group other = context.new_group({0});
  const Context meshed = context.mesh({{"data", 1}});  // the world's engine under another name
  EXPECT_EQ(shut_down, 0);
  context.shutdown();
  EXPECT_EQ(shut_down, 2);
  context.shutdown();
  EXPECT_EQ(shut_down, 2);
}

}  // namespace
}  // namespace rondo::context_device_test
