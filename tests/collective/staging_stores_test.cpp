#include "rondo/collective/shared_memory/staging_stores.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

namespace rondo::shared_memory {
namespace {

constexpr std::size_t kBytes = 65536;

// Moves `count` chunks whose phases take `cached` or `streamed` ns per cache line each, depending on the
// choice; returns the share that was streamed.
double share_streamed(StagingStores& stores, std::uint64_t first, int count, std::uint64_t chunks, int cached,
                      int streamed) {
  int streams = 0;
  for (std::uint64_t ticket = first; ticket < first + static_cast<std::uint64_t>(count); ++ticket) {
    const bool now = stores.streams(ticket, chunks);
    streams += now ? 1 : 0;
    for (const StagingPhase phase : {StagingPhase::copy, StagingPhase::reduce, StagingPhase::fetch})
      stores.add(phase, ticket, chunks, kBytes, std::chrono::nanoseconds((now ? streamed : cached) * 1024));
  }
  return static_cast<double>(streams) / count;
}

TEST(StagingStores, TakesTheFasterWay) {
  StagingStores near;
  EXPECT_LT(share_streamed(near, 0, 10000, 1, 3, 6), 0.02);
  StagingStores far;
  EXPECT_GT(share_streamed(far, 0, 10000, 1, 30, 6), 0.98);
}

TEST(StagingStores, NoticesThatTheProcessorsMoved) {
  StagingStores stores;
  share_streamed(stores, 0, 10000, 1, 30, 6);
  share_streamed(stores, 10000, 10000, 1, 3, 6);
  EXPECT_LT(share_streamed(stores, 20000, 10000, 1, 3, 6), 0.02);
  share_streamed(stores, 30000, 10000, 1, 30, 6);
  EXPECT_GT(share_streamed(stores, 40000, 10000, 1, 30, 6), 0.98);
}

TEST(StagingStores, CountsTheReadingOfStreamedChunks) {
  StagingStores stores;
  int streams = 0;
  for (std::uint64_t ticket = 0; ticket < 10000; ++ticket) {
    const bool now = stores.streams(ticket, 4);
    streams += now ? 1 : 0;
    stores.add(StagingPhase::copy, ticket, 4, kBytes, std::chrono::microseconds(now ? 3 : 5));
    stores.add(StagingPhase::reduce, ticket, 4, kBytes, std::chrono::microseconds(now ? 8 : 4));
    stores.add(StagingPhase::fetch, ticket, 4, kBytes, std::chrono::microseconds(now ? 6 : 3));
  }
  EXPECT_LT(streams, 200);
}

TEST(StagingStores, DecidesApartForOperationsOfOneChunk) {
  StagingStores stores;
  share_streamed(stores, 0, 1000, 4, 3, 6);
  share_streamed(stores, 1000, 1000, 1, 10, 3);
  EXPECT_GT(share_streamed(stores, 2000, 10000, 1, 10, 3), 0.98);
  EXPECT_LT(share_streamed(stores, 12000, 10000, 4, 3, 6), 0.02);
}

TEST(StagingStores, ALostProcessorChangesNothing) {
  StagingStores stores;
  share_streamed(stores, 0, 10000, 1, 30, 6);
  // A ticket of the second group, which measures streaming.
  stores.add(StagingPhase::copy, 12, 1, kBytes, std::chrono::milliseconds(50));
  EXPECT_GT(share_streamed(stores, 10001, 1000, 1, 30, 6), 0.9);
}

TEST(StreamCopy, CopiesEveryLength) {
  std::vector<std::byte> source(1024);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7);
  alignas(64) std::array<std::byte, 1024> target;
  for (std::size_t bytes = 0; bytes < 300; ++bytes) {
    target.fill(std::byte{0});
    stream_copy(target.data(), source.data() + 3, bytes);
    fence_streamed();
    EXPECT_EQ(std::memcmp(target.data(), source.data() + 3, bytes), 0) << bytes;
    EXPECT_EQ(target[bytes], std::byte{0}) << bytes;
  }
}

}  // namespace
}  // namespace rondo::shared_memory
