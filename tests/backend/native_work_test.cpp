// A destroyed Work releases its tensors, however long the engine keeps the operation.
#include "rondo/backend/native/native_work.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "rondo/channel/store.h"

namespace rondo::native_work_test {
namespace {

class NativeWorkMemory : public ::testing::Test {
 protected:
  NativeWorkMemory()
      : engine_(std::make_shared<shared_memory::Engine>(store_, shared_memory::GroupOptions{}, nullptr)) {}

  // Starts an operation that writes to `result_`; the engine's reference is `kept_`.
  c10::intrusive_ptr<NativeWork> start() {
    kept_ = std::make_shared<NativeOperation>(NativeOperation::Memory{.results = {result_}});
    NativeWork::Pending pending;
    pending.operation = kept_;
    return c10::make_intrusive<NativeWork>(engine_, c10d::OpType::ALLREDUCE, std::move(pending));
  }
  bool kept() const { return result_.use_count() > 1; }

  MemoryStore store_;
  std::shared_ptr<shared_memory::Engine> engine_;
  const at::Tensor result_ = at::ones({8});
  std::shared_ptr<NativeOperation> kept_;
};

TEST_F(NativeWorkMemory, GoesWithAWorkThatWasWaitedFor) {
  auto work = start();
  kept_->finish(nullptr);
  work->wait(kNoTimeout);
  EXPECT_TRUE(kept());
  work.reset();
  EXPECT_FALSE(kept());
  kept_->announce();  // the engine's thread announces it later
}

TEST_F(NativeWorkMemory, StaysUntilAnUnawaitedOperationEnds) {
  start().reset();
  EXPECT_TRUE(kept());
  kept_->finish(nullptr);
  EXPECT_TRUE(kept());
  kept_->announce();
  EXPECT_FALSE(kept());
}

TEST_F(NativeWorkMemory, IsTheFuturesWhereOneWasAskedFor) {
  auto work = start();
  auto future = work->getFuture();
  work.reset();
  kept_->finish(nullptr);
  kept_->announce();
  EXPECT_EQ(future->value().toTensorVector().front().data_ptr(), result_.data_ptr());
  EXPECT_TRUE(kept());
  future.reset();
  EXPECT_FALSE(kept());
}

TEST_F(NativeWorkMemory, StaysAfterFailureWhilePeersMayWrite) {
  auto work = start();
  kept_->finish(std::make_exception_ptr(std::runtime_error("lost")));
  EXPECT_THROW(work->wait(kNoTimeout), std::runtime_error);
  work.reset();
  EXPECT_TRUE(kept());
  kept_.reset();
  EXPECT_FALSE(kept());
}

}  // namespace
}  // namespace rondo::native_work_test
