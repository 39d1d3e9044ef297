// Owners of operations are notified in a call that waits for something else, and may wait themselves then, as
// callbacks of futures do that start a collective and wait for it.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <vector>

#include "rondo/collective/shared_memory/engine.h"
#include "tests/collective/engine_threads.h"

namespace rondo::shared_memory::engine_announcements_test {
namespace {

// Buffer of an in-place operation; calls `then` after its end.
class Owner : public OperationOwner {
 public:
  explicit Owner(std::size_t bytes) : bytes_(bytes) {}
  void finish(const std::exception_ptr&) noexcept override {}
  void announce() noexcept override {
    if (then) then();
    ended_.set_value();
  }
  // Waits without using the engine, and returns whether the operation has ended in time.
  bool wait() { return ended_.get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready; }
  std::vector<std::byte>& bytes() { return bytes_; }

  std::function<void()> then;

 private:
  std::vector<std::byte> bytes_;
  std::promise<void> ended_;
};

void start(Engine& engine, const std::shared_ptr<Owner>& owner) {
  CollectiveRequest request{
      .kind = OperationKind::all_reduce, .type = DType::uint8, .elements = owner->bytes().size()};
  request.input.base = request.output.base = owner->bytes().data();
  engine.start(std::move(request), owner);
}

TEST(Announcements, MayWaitInsideACallThatWaits) {
  std::promise<void> waits;
  std::promise<void> next_started;
  run_engine_threads(2, nullptr, [&](Engine& engine) {
    const int rank = engine.rank();
    const auto first = std::make_shared<Owner>(1000);
    const auto next = std::make_shared<Owner>(100'000);
    std::byte byte{};
    if (rank == 0) {
      bool in_time = false;
      first->then = [&] {
        start(engine, next);
        next_started.set_value();
        in_time = next->wait();
      };
      start(engine, first);
      const auto message = engine.start_receive({.peer = 1, .data = &byte, .bytes = 1});
      waits.set_value();
      engine.wait(*message, {});
      EXPECT_TRUE(in_time);
    } else {
      waits.get_future().wait();
      start(engine, first);
      next_started.get_future().wait();
      start(engine, next);
      EXPECT_TRUE(next->wait());
      engine.wait(*engine.start_send({.peer = 0, .data = &byte, .bytes = 1}), {});
    }
  });
}

}  // namespace
}  // namespace rondo::shared_memory::engine_announcements_test
