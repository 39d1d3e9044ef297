#include "rondo/observe/memory_observer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/observe/step_times.h"

namespace rondo::memory_test {
namespace {

TEST(ProcessMemory, SeesPagesThatWereTouched) {
  const ProcessMemory before = process_memory();
  std::vector<char> pages(MiB(32).count);
  std::memset(pages.data(), 1, pages.size());
  const ProcessMemory after = process_memory();
  EXPECT_GE(after.rss, before.rss + MiB(31));
  // Not against the proportional size before: that of the libraries falls when another process maps them too.
  EXPECT_GE(after.pss, MiB(31));
  EXPECT_LE(after.pss, after.rss);
  EXPECT_GE(after.peak_rss, after.rss);
  EXPECT_GE(peak_rss(), before.rss + MiB(31));
}

TEST(MemoryMeter, KeepsThePeakAfterMemoryIsGivenBack) {
  MemoryMeter meter;
  Bytes with_pages;
  {
    std::vector<char> pages(MiB(64).count);
    std::memset(pages.data(), 1, pages.size());
    with_pages = meter.sample();
  }
  EXPECT_GE(with_pages, MiB(64));
#ifdef __SANITIZE_ADDRESS__
  EXPECT_GE(meter.sample(), with_pages);  // what was freed stays for a while, and the peak may rise
#else
  EXPECT_EQ(meter.sample(), with_pages);
#endif
  EXPECT_GT(meter.sample_pss(), Bytes{});
}

TEST(MemoryMeter, TakesAnAllocatorsOwnFigures) {
  Bytes now = MiB(5);
  MemoryMeter meter([&] { return now; });
  EXPECT_EQ(meter.sample(), MiB(5));
  now = MiB(3);
  EXPECT_EQ(meter.sample(), MiB(5));
  EXPECT_EQ(meter.peak(), MiB(5));
}

TEST(StepTimer, ComputeIsWhatCommunicationDidNotHoldUp) {
  const std::int64_t begin_ns = monotonic_ns();
  StepTimer timer;
  const Deadline end = Deadline::after(std::chrono::milliseconds(5));
  while (!end.passed()) {
  }
  const StepTimes times = timer.finish_step(std::chrono::milliseconds(4), std::chrono::milliseconds(1));
  EXPECT_GE(times.step_ms, 5.0);
  EXPECT_DOUBLE_EQ(times.comm_ms, 4.0);
  EXPECT_DOUBLE_EQ(times.exposed_comm_ms, 1.0);
  EXPECT_DOUBLE_EQ(times.compute_ms, times.step_ms - 1.0);
  // The next step begins where this one ended.
  const double next_ms = timer.finish_step({}, {}).step_ms;
  EXPECT_LE(times.step_ms + next_ms, static_cast<double>(monotonic_ns() - begin_ns) / 1e6);
}

}  // namespace
}  // namespace rondo::memory_test
