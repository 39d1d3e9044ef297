// The simulated accelerator itself: its errors, as on a GPU, and its counters.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tests/sim/ranks.h"

namespace rondo::sim::device_test {
namespace {

// Runs a test in a separate process, as everything that uses a device must.
int in_process(const std::function<void()>& body) {
  return tests::run_rank_processes(1, [&](Store& /*meeting*/, int /*rank*/) {
    device(0);
    body();
  });
}

at::TensorOptions on(int index) { return at::TensorOptions().dtype(at::kFloat).device(device(index)); }

TEST(SimDevice, ComputesAndDifferentiatesOnItsOwnThreads) {
  EXPECT_EQ(in_process([] {
              const at::Tensor x = at::ones({3, 4}, on(1)).set_requires_grad(true);
              std::thread::id backward;
              x.register_hook([&](const at::Tensor& gradient) {
                backward = std::this_thread::get_id();
                return gradient;
              });
              (x * 2).sum().backward();
              EXPECT_EQ(x.grad().device(), device(1));
              EXPECT_TRUE(at::equal(x.grad().cpu(), at::full({3, 4}, 2.0)));
              EXPECT_NE(backward, std::this_thread::get_id());
            }),
            0);
}

TEST(SimDevice, TensorsOnDifferentDevicesAreErrors) {
  EXPECT_EQ(in_process([] {
              const at::Tensor x = at::ones({3}, on(0));
              EXPECT_THROW(x + at::ones({3}), c10::Error);
              EXPECT_THROW(at::ones({3}) + x, c10::Error);
              EXPECT_THROW(x + at::ones({3}, on(1)), c10::Error);
              EXPECT_THROW(at::ones({3}).add_(x), c10::Error);
              EXPECT_THROW(at::cat({x, at::ones({3})}), c10::Error);
              EXPECT_THROW(at::ones({3}, on(4)), c10::Error);
              // As on CUDA: a zero-dimensional tensor may be on the host.
              EXPECT_TRUE(at::equal((x + at::scalar_tensor(2)).cpu(), at::full({3}, 3.0)));
              EXPECT_EQ(x.to(device(1)).device(), device(1));
            }),
            0);
}

TEST(SimDevice, CountsCopiesAndWaitsOfTheHost) {
  EXPECT_EQ(in_process([] {
              const Counts before = read_counts();
              const at::Tensor x = at::ones({3}).to(device(0));
              const at::Tensor y = at::empty({3}, on(1));
              y.copy_(x);
              x.cpu();
              x.sum().item();
              x.view({1, 3});
              const Counts after = read_counts();
              EXPECT_EQ(after.host_to_device - before.host_to_device, 1);
              EXPECT_EQ(after.device_to_device - before.device_to_device, 1);
              EXPECT_EQ(after.device_to_host - before.device_to_host, 2);
              EXPECT_EQ(after.synchronisations - before.synchronisations, 3);
              EXPECT_EQ(after.launches - before.launches, 1);
            }),
            0);
}

TEST(SimDevice, MemoryCannotBeReadOnTheHost) {
  EXPECT_EQ(in_process([] {
              const at::Tensor x = at::ones({3}, on(0));
              volatile const float value = *static_cast<const float*>(x.const_data_ptr());
              static_cast<void>(value);
            }),
            1);
}

TEST(SimDevice, GeneratorsHaveSixteenBytesAndOwnNumbers) {
  EXPECT_EQ(in_process([] {
              torch::manual_seed(3);
              at::Generator generator = at::globalContext().defaultGenerator(device(0));
              const at::Tensor state = generator.get_state();
              EXPECT_EQ(state.numel(), 16);
              const at::Tensor first = at::rand({4}, on(0)).cpu(), second = at::rand({4}, on(0)).cpu();
              EXPECT_FALSE(at::equal(first, second));
              EXPECT_FALSE(at::equal(first, at::rand({4})));
              generator.set_state(state);
              EXPECT_TRUE(at::equal(first, at::rand({4}, on(0)).cpu()));
            }),
            0);
}

TEST(SimDevice, StorageGrowsAndShrinks) {
  EXPECT_EQ(in_process([] {
              const at::Tensor x = at::ones({2}, on(2));
              const at::Tensor same = x.view({2});
              x.resize_({100}).fill_(3);
              EXPECT_TRUE(at::equal(same.cpu(), at::full({2}, 3.0)));
              EXPECT_EQ(x.device(), device(2));
            }),
            0);
}

}  // namespace
}  // namespace rondo::sim::device_test
