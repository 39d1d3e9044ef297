#include "rondo/memory/tracker.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <thread>

#include "rondo/base/replica.h"
#include "rondo/memory/scope.h"

namespace rondo::tracker_test {
namespace {

// Returns an address that stands for a block.
const char* address(std::size_t i) {
  static const std::array<char, 4096> memory{};
  return memory.data() + 16 * i;
}

TEST(BlockTable, IsAMapUnderAnyInsertsAndRemovals) {
  BlockTable table;
  std::map<const void*, std::uint64_t> expected;
  std::mt19937_64 random(7);
  for (int i = 0; i < 200'000; ++i) {
    // Few addresses, so that probe sequences collide; more than the first table holds.
    const auto* key = reinterpret_cast<const void*>((1 + random() % 3000) * 4096);
    if (random() % 2 == 0) {
      const auto before = table.insert(key, {.bytes = random() % 1000, .label = {}});
      const auto known = expected.find(key);
      ASSERT_EQ(before.has_value(), known != expected.end());
      if (before) {
        ASSERT_EQ(before->bytes, known->second);
      }
      expected[key] = table.find(key)->bytes;
    } else {
      const auto removed = table.remove(key);
      const auto known = expected.find(key);
      ASSERT_EQ(removed.has_value(), known != expected.end());
      if (removed) {
        ASSERT_EQ(removed->bytes, known->second);
      }
      expected.erase(key);
    }
    ASSERT_EQ(table.size(), expected.size());
  }
  for (const auto& [key, bytes] : expected) ASSERT_EQ(table.find(key)->bytes, bytes);
}

TEST(MemoryScope, TheInnermostLabelHolds) {
  EXPECT_EQ(memory_labels().innermost().category, MemoryCategory::other);
  const MemoryScope outer(MemoryCategory::activations, "block");
  EXPECT_EQ(memory_unit_name(memory_labels().innermost().unit), "block");
  {
    const MemoryScope inner(MemoryCategory::communication);
    EXPECT_EQ(memory_labels().innermost().category, MemoryCategory::communication);
    EXPECT_EQ(memory_labels().innermost().unit, memory_unit("block")) << "the unit is the outer scope's";
    std::thread([] { EXPECT_EQ(memory_labels().depth(), 0U) << "labels are the thread's"; }).join();
  }
  EXPECT_EQ(memory_labels().innermost().category, MemoryCategory::activations);
}

TEST(MemoryScope, LabelsOfOwnersEndInAnyOrder) {
  const int a = 0;
  const int b = 0;
  const std::size_t depth = memory_labels().depth();
  {
    const MemoryScope scope(MemoryCategory::temporaries);
    memory_labels().enter(&a, {MemoryCategory::gradients, memory_unit("a")});
    memory_labels().enter(&b, {MemoryCategory::activations, memory_unit("b")});
    memory_labels().leave(&a);
    EXPECT_EQ(memory_labels().innermost().unit, memory_unit("b"));
    memory_labels().leave(&a);  // no label any more
    EXPECT_EQ(memory_labels().innermost().unit, memory_unit("b"));
  }
  EXPECT_EQ(memory_labels().depth(), depth) << "b's was left behind";
}

TEST(MemoryTracker, CountsByCategoryAndUnit) {
  MemoryTracker tracker;
  {
    const MemoryScope scope(MemoryCategory::parameters, "first");
    tracker.add(address(0), 100);
    tracker.add(address(1), 20);
  }
  tracker.add(address(2), 7);
  const MemoryUsage usage = tracker.usage();
  EXPECT_EQ(usage.total, 127U);
  EXPECT_EQ(usage[MemoryCategory::parameters], 120U);
  EXPECT_EQ(usage[MemoryCategory::other], 7U);
  EXPECT_EQ(bytes_of(usage.of_unit("first"), MemoryCategory::parameters), 120U);
  EXPECT_EQ(bytes_of(usage.of_unit("root"), MemoryCategory::other), 7U);
  EXPECT_EQ(total_of(usage.of_unit("nothing of that name")), 0U);

  // A block is removed from the label that it was added under, whatever the current label is.
  const MemoryScope scope(MemoryCategory::gradients, "second");
  EXPECT_TRUE(tracker.remove(address(0)));
  EXPECT_FALSE(tracker.remove(address(0)));
  EXPECT_EQ(tracker.usage()[MemoryCategory::parameters], 20U);
  EXPECT_EQ(tracker.total(), 27U);
}

TEST(MemoryTracker, ABlockCanGetAnotherLabel) {
  MemoryTracker tracker;
  tracker.add(address(0), 50);
  tracker.relabel(address(0), {MemoryCategory::gradients, memory_unit("first")});
  tracker.relabel(address(1), {MemoryCategory::gradients, memory_unit("first")});  // not tracked
  EXPECT_EQ(tracker.usage()[MemoryCategory::gradients], 50U);
  EXPECT_EQ(tracker.usage()[MemoryCategory::other], 0U);
  EXPECT_EQ(tracker.peak().usage[MemoryCategory::gradients], 50U) << "the peak is still now";
  EXPECT_TRUE(tracker.remove(address(0)));
  EXPECT_EQ(tracker.total(), 0U);
}

TEST(MemoryTracker, ABlockCanCountInPart) {
  MemoryTracker tracker;
  tracker.set_limit(Bytes{60});
  tracker.add(address(0), 50);
  tracker.resize(address(0), 20);
  tracker.resize(address(1), 20);  // not tracked
  EXPECT_EQ(tracker.total(), 20U);
  EXPECT_EQ(tracker.peak_total(), 50U);
  tracker.add(address(1), 30);
  EXPECT_THROW(tracker.resize(address(0), 31), MemoryLimitError);
  tracker.resize(address(0), 30);
  EXPECT_EQ(tracker.usage()[MemoryCategory::other], 60U);
  EXPECT_TRUE(tracker.remove(address(0)));
  EXPECT_EQ(tracker.total(), 30U) << "what it counted last is given back";
}

TEST(MemoryTracker, ReusedAddressWithoutRemoveCountsOnce) {
  MemoryTracker tracker;
  tracker.add(address(0), 50);
  tracker.add(address(0), 30);
  EXPECT_EQ(tracker.total(), 30U);
}

TEST(MemoryTracker, RemembersThePeakAndItsMoment) {
  MemoryTracker tracker;
  memory_moment() = {3, "backward"};
  tracker.add(address(0), 100);
  {
    const MemoryScope scope(MemoryCategory::temporaries, "block");
    tracker.add(address(1), 50);
  }
  tracker.remove(address(0));
  memory_moment() = {4, "forward"};
  tracker.add(address(2), 20);
  const MemoryPeak peak = tracker.peak();
  EXPECT_EQ(peak.usage.total, 150U);
  EXPECT_EQ(peak.usage[MemoryCategory::temporaries], 50U);
  EXPECT_EQ(peak.usage[MemoryCategory::other], 100U);
  EXPECT_EQ(peak.step, 3);
  EXPECT_EQ(peak.phase, "backward");
  EXPECT_EQ(peak.unit, "block");
  tracker.reset_peak();
  EXPECT_EQ(tracker.peak().usage.total, 70U);
  tracker.add(address(3), 1);
  EXPECT_EQ(tracker.peak().usage.total, 71U);
  memory_moment() = {};
}

TEST(MemoryTracker, IntervalsHaveTheirOwnLargestMoments) {
  MemoryTracker tracker;
  tracker.add(address(0), 100);
  tracker.add(address(1), 50);
  tracker.remove(address(1));
  EXPECT_EQ(tracker.take_largest_total(), 150U);
  MemoryInterval interval = tracker.take_interval();
  EXPECT_EQ(total_of(interval.peak), 150U);
  EXPECT_EQ(total_of(interval.now), 100U);
  EXPECT_LE(interval.peak_time_ns, interval.now_ns);
  tracker.add(address(1), 10);
  tracker.remove(address(0));
  interval = tracker.take_interval();
  EXPECT_EQ(total_of(interval.peak), 110U);
  EXPECT_EQ(tracker.take_largest_total(), 110U) << "both are taken, each by itself";
  EXPECT_EQ(tracker.take_largest_total(), 10U) << "nothing happened";
  EXPECT_EQ(total_of(interval.now), 10U);
  EXPECT_EQ(total_of(tracker.take_interval().peak), 10U) << "nothing happened";
}

TEST(MemoryTracker, LimitErrorListsMemoryInUseLargestFirst) {
  MemoryTracker tracker;
  tracker.set_limit(KiB(100));
  {
    const MemoryScope scope(MemoryCategory::parameters, "embedding");
    tracker.add(address(0), 20 << 10);
  }
  const MemoryScope scope(MemoryCategory::activations, "block.7");
  tracker.add(address(1), 60 << 10);
  memory_moment() = {5, "forward"};
  try {
    tracker.add(address(2), 40 << 10);
    FAIL() << "the limit did not hold";
  } catch (const MemoryLimitError& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.wanted(), KiB(40));
    EXPECT_EQ(error.limit(), KiB(100));
    EXPECT_NE(text.find("40.0 KiB of activations for block.7, step 5, forward"), std::string::npos) << text;
    EXPECT_NE(text.find("In use: 60.0 KiB activations, 20.0 KiB parameters"), std::string::npos) << text;
    EXPECT_NE(text.find("60.0 KiB activations of block.7, 20.0 KiB parameters of embedding"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("--activation-checkpointing"), std::string::npos) << text;
  }
  memory_moment() = {};
  EXPECT_EQ(tracker.total(), 80U << 10) << "what did not fit is not charged";
  tracker.add(address(2), 20 << 10);  // exactly the limit
  EXPECT_THROW(tracker.charge({}, 1), MemoryLimitError);
  tracker.set_limit({});
  tracker.add(address(3), 1 << 30);
}

TEST(MemoryCharge, IsTrackedAsLongAsItLives) {
  const std::uint64_t before = replica_memory_tracker().total();
  {
    MemoryCharge charge(MemoryCategory::communication, KiB(4), memory_unit("charged"));
    MemoryCharge moved = std::move(charge);
    EXPECT_EQ(replica_memory_tracker().total(), before + 4096);
    EXPECT_EQ(bytes_of(replica_memory_tracker().usage().of_unit("charged"), MemoryCategory::communication),
              4096U);
    moved = MemoryCharge(MemoryCategory::parameters, KiB(1));
    EXPECT_EQ(replica_memory_tracker().total(), before + 1024);
  }
  EXPECT_EQ(replica_memory_tracker().total(), before);
}

TEST(MemoryTracker, ThreadsLoseNothing) {
  MemoryTracker tracker;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&tracker, t] {
      const MemoryScope scope(MemoryCategory::activations, std::string(1, static_cast<char>('a' + t)));
      for (int round = 0; round < 2000; ++round) {
        for (std::size_t i = 0; i < 8; ++i) tracker.add(address(32 * t + i), 10);
        tracker.take_interval();
        for (std::size_t i = 0; i < 8; ++i) tracker.remove(address(32 * t + i));
      }
      tracker.add(address(32 * t), 5);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tracker.usage()[MemoryCategory::activations], 20U);
  EXPECT_LE(tracker.peak_total(), 4U * 80U);
  EXPECT_GE(tracker.peak_total(), 80U);
}

// Two replicas in one process: figures, limits and peaks of one do not affect the other.
TEST(MemoryTracker, ReplicasHaveTrackersOfTheirOwn) {
  const Replica process;
  replica_memory_tracker().set_limit(Bytes{5000});
  std::thread([] {
    const Replica replica;
    begin_replica_tracker(replica.number());
    replica.enter();
    MemoryTracker& own = replica_memory_tracker();
    EXPECT_EQ(own.limit()->count, 5000U) << "taken over";
    own.set_limit(Bytes{100});
    own.add(address(0), 90);
    EXPECT_THROW(own.add(address(1), 90), MemoryLimitError);
    MemoryCharge charge(MemoryCategory::communication, Bytes{10});
    EXPECT_EQ(own.total(), 100U);
    std::thread([&] {  // of the process's own replica
      const std::uint64_t before = replica_memory_tracker().total();
      EXPECT_NE(&replica_memory_tracker(), &own);
      EXPECT_EQ(replica_memory_tracker().limit()->count, 5000U);
      // A block is removed from its own tracker, whichever thread releases it.
      EXPECT_FALSE(replica_memory_tracker().remove(address(0)));
      EXPECT_TRUE(any_replica_tracker([](MemoryTracker& tracker) { return tracker.remove(address(0)); }));
      EXPECT_FALSE(any_replica_tracker([](MemoryTracker& tracker) { return tracker.remove(address(0)); }));
      const MemoryCharge here = std::move(charge);
      EXPECT_EQ(own.total(), 10U);
      EXPECT_EQ(replica_memory_tracker().total(), before);
    })
        .join();
    EXPECT_EQ(own.total(), 0U);
  }).join();
  replica_memory_tracker().set_limit({});
}

}  // namespace
}  // namespace rondo::tracker_test
