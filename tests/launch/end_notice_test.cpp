#include "rondo/launch/end_notice.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

#include "rondo/launch/descriptor.h"
#include "rondo/launch/network.h"

namespace rondo::end_notice_test {
namespace {

using launch::NoticeLimits;
using launch::notify_store;
using launch::serve_notice;
using launch::wait_for_notice;

NoticeLimits soon() { return {Deadline::after(std::chrono::minutes(1)), {}}; }

TEST(EndNotice, IsToldToEverybodyWhoAsks) {
  const int port = launch::find_free_port();
  const auto ask = [&] { return wait_for_notice("127.0.0.1", port, soon().deadline); };
  auto before = std::async(std::launch::async, ask);  // starts before anything listens, in most runs
  auto another = std::async(std::launch::async, ask);
  serve_notice("127.0.0.1", port, "", "rank 1 on host a was killed\nby SIGKILL", /*readers=*/2, soon());
  EXPECT_EQ(before.get(), "rank 1 on host a was killed by SIGKILL");
  EXPECT_EQ(another.get(), "rank 1 on host a was killed by SIGKILL");
}

TEST(EndNotice, EndsInTime) {
  const int port = launch::find_free_port();
  EXPECT_EQ(wait_for_notice("127.0.0.1", port, Deadline::after(Duration{})), std::nullopt);
  EXPECT_FALSE(notify_store("127.0.0.1", port, "key", "text", {Deadline::after(Duration{}), {}}));
  serve_notice("127.0.0.1", port, "", "text", /*readers=*/1, {Deadline::after(Duration{}), {}});
  serve_notice("127.0.0.1", port, "", "text", /*readers=*/0, soon());
}

TEST(EndNotice, EndsWhenItIsInterrupted) {
  const launch::Pipe pipe = launch::make_pipe();
  ASSERT_EQ(write(pipe.write_end.number(), "x", 1), 1);
  const int port = launch::find_free_port();
  const NoticeLimits limits{Deadline::after(std::chrono::hours(1)), {-1, pipe.read_end.number()}};
  EXPECT_FALSE(notify_store("127.0.0.1", port, "key", "text", limits));
  serve_notice("127.0.0.1", port, "", "text", /*readers=*/1, limits);
}

// Another program listens where a store or a launcher is expected.
TEST(EndNotice, TakesNoAnswerOfAnother) {
  const int port = launch::find_free_port();
  auto store =
      std::async(std::launch::async, [&] { return notify_store("127.0.0.1", port, "key", "text", soon()); });
  auto launcher = std::async(std::launch::async,
                             [&] { serve_notice("127.0.0.1", port, "", "text", /*readers=*/1, soon()); });
  EXPECT_FALSE(store.get());
  EXPECT_EQ(wait_for_notice("127.0.0.1", port, soon().deadline), "text");
}

}  // namespace
}  // namespace rondo::end_notice_test
