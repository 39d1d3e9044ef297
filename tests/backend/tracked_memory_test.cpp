#include "rondo/backend/memory/tracked_memory.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

#include "rondo/backend/memory/registered_memory.h"
#include "rondo/memory/scope.h"

namespace rondo::tracked_memory_test {
namespace {

// The memory tracker of this process includes blocks from before a test: tests check differences.
class TrackedMemory : public ::testing::Test {
 protected:
  TrackedMemory() { track_cpu_allocations(); }
  ~TrackedMemory() override { replica_memory_tracker().set_limit({}); }
  static std::uint64_t of(const std::string& unit, MemoryCategory category) {
    return bytes_of(replica_memory_tracker().usage().of_unit(unit), category);
  }
};

TEST_F(TrackedMemory, ChargesRequestedBytesToTheThreadsLabel) {
  ASSERT_TRUE(tracks_cpu_allocations());
  const std::uint64_t before = replica_memory_tracker().total();
  {
    const MemoryScope scope(MemoryCategory::parameters, "charged");
    const at::Tensor small = at::empty({10});
    const at::Tensor large = at::empty({100'000});
    EXPECT_EQ(of("charged", MemoryCategory::parameters), 400'040U);
    const at::Tensor view = large.narrow(0, 0, 10);
    EXPECT_EQ(of("charged", MemoryCategory::parameters), 400'040U);
    std::thread([&] {
      const at::Tensor elsewhere = at::empty({8});
      EXPECT_EQ(of("charged", MemoryCategory::parameters), 400'040U) << "another thread has its own label";
    }).join();
    label_memory(view, {MemoryCategory::gradients, memory_unit("other")});
    EXPECT_EQ(of("charged", MemoryCategory::parameters), 40U);
    EXPECT_EQ(of("other", MemoryCategory::gradients), 400'000U) << "the block behind a view";
  }
  EXPECT_EQ(replica_memory_tracker().total(), before);
  EXPECT_EQ(of("other", MemoryCategory::gradients), 0U);
  label_memory(at::Tensor(), {});
  label_memory(at::empty({0}), {});
}

TEST_F(TrackedMemory, RegisteredMemoryIsTrackedToo) {
  if (process_arena() == nullptr) GTEST_SKIP() << "the kernel allows no large sparse shared memory";
  const MemoryScope scope(MemoryCategory::communication, "registered");
  at::Tensor before = at::empty({50'000});
  register_cpu_allocations();
  const at::Tensor after = at::empty({50'000});
  if (registers_allocations()) {
    EXPECT_TRUE(is_registered(after));
  }
  const at::Tensor mapped = empty_registered({50'000});
  EXPECT_EQ(of("registered", MemoryCategory::communication), 600'000U);
  before.reset();  // allocated from another source than the current one
  EXPECT_EQ(of("registered", MemoryCategory::communication), 400'000U);
}

TEST_F(TrackedMemory, RawMemoryIsTracked) {
  const std::uint64_t before = replica_memory_tracker().total();
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  void* const block = allocator.raw_allocate(1000);
  EXPECT_EQ(replica_memory_tracker().total(), before + 1000);
  allocator.raw_deallocate(block);
  EXPECT_EQ(replica_memory_tracker().total(), before);
}

TEST_F(TrackedMemory, AllocatesNothingBeyondTheLimit) {
  const std::uint64_t before = replica_memory_tracker().total();
  replica_memory_tracker().set_limit(Bytes{before} + MiB(1));
  const MemoryScope scope(MemoryCategory::activations, "greedy");
  const at::Tensor fits = at::ones({100'000});
  EXPECT_THROW(at::empty({1'000'000}), MemoryLimitError);
  EXPECT_EQ(replica_memory_tracker().total(), before + 400'000);
  // Also inside backward: the gradient of a product needs another tensor of this size.
  const at::Tensor leaf = torch::ones({100'000}, torch::requires_grad());
  EXPECT_THROW(
      {
        const at::Tensor product = (leaf * fits).sum();
        replica_memory_tracker().set_limit(Bytes{replica_memory_tracker().total()} + KiB(1));
        product.backward();
      },
      MemoryLimitError);
  replica_memory_tracker().set_limit({});
  (leaf * fits).sum().backward();
  EXPECT_TRUE(leaf.grad().defined());
}

}  // namespace
}  // namespace rondo::tracked_memory_test
