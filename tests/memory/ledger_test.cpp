#include "rondo/memory/ledger.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <thread>

#include "rondo/memory/limit_error.h"

namespace rondo {
namespace {

// Addresses to stand for blocks.
const char* address(std::size_t i) {
  static const std::array<char, 4096> memory{};
  return memory.data() + 16 * i;
}

TEST(BlockTable, IsAMapUnderAnySequenceOfInsertsAndRemovals) {
  BlockTable table;
  std::map<const void*, std::uint64_t> expected;
  std::mt19937_64 random(7);
  for (int i = 0; i < 200'000; ++i) {
    // Few addresses, so that searches run into each other; more than the first table holds.
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

TEST(MemoryScope, LabelsOfOwnersEndInAnyOrderAndWithTheScopeAroundThem) {
  const int a = 0;
  const int b = 0;
  const std::size_t depth = memory_labels().depth();
  {
    const MemoryScope scope(MemoryCategory::temporaries);
    memory_labels().enter(&a, {MemoryCategory::gradients, memory_unit("a")});
    memory_labels().enter(&b, {MemoryCategory::activations, memory_unit("b")});
    memory_labels().leave(&a);
    EXPECT_EQ(memory_labels().innermost().unit, memory_unit("b"));
    memory_labels().leave(&a);  // is none any more
    EXPECT_EQ(memory_labels().innermost().unit, memory_unit("b"));
  }
  EXPECT_EQ(memory_labels().depth(), depth) << "b's was left behind";
}

TEST(MemoryLedger, KeepsBooksByCategoryAndUnit) {
  MemoryLedger ledger;
  {
    const MemoryScope scope(MemoryCategory::parameters, "first");
    ledger.add(address(0), 100);
    ledger.add(address(1), 20);
  }
  ledger.add(address(2), 7);
  const MemoryUsage usage = ledger.usage();
  EXPECT_EQ(usage.total, 127U);
  EXPECT_EQ(usage[MemoryCategory::parameters], 120U);
  EXPECT_EQ(usage[MemoryCategory::other], 7U);
  EXPECT_EQ(bytes_of(usage.of_unit("first"), MemoryCategory::parameters), 120U);
  EXPECT_EQ(bytes_of(usage.of_unit("root"), MemoryCategory::other), 7U);
  EXPECT_EQ(total_of(usage.of_unit("nothing of that name")), 0U);

  // A block goes from where it was charged, whatever the label of the moment.
  const MemoryScope scope(MemoryCategory::gradients, "second");
  EXPECT_TRUE(ledger.remove(address(0)));
  EXPECT_FALSE(ledger.remove(address(0)));
  EXPECT_EQ(ledger.usage()[MemoryCategory::parameters], 20U);
  EXPECT_EQ(ledger.total(), 27U);
}

TEST(MemoryLedger, ABlockCanGetAnotherLabel) {
  MemoryLedger ledger;
  ledger.add(address(0), 50);
  ledger.relabel(address(0), {MemoryCategory::gradients, memory_unit("first")});
  ledger.relabel(address(1), {MemoryCategory::gradients, memory_unit("first")});  // not on the books
  EXPECT_EQ(ledger.usage()[MemoryCategory::gradients], 50U);
  EXPECT_EQ(ledger.usage()[MemoryCategory::other], 0U);
  EXPECT_EQ(ledger.peak().usage[MemoryCategory::gradients], 50U) << "the peak is still now";
  EXPECT_TRUE(ledger.remove(address(0)));
  EXPECT_EQ(ledger.total(), 0U);
}

TEST(MemoryLedger, ABlockCanCountInPart) {
  MemoryLedger ledger;
  ledger.set_limit(Bytes{60});
  ledger.add(address(0), 50);
  ledger.resize(address(0), 20);
  ledger.resize(address(1), 20);  // not on the books
  EXPECT_EQ(ledger.total(), 20U);
  EXPECT_EQ(ledger.peak_total(), 50U);
  ledger.add(address(1), 30);
  EXPECT_THROW(ledger.resize(address(0), 31), MemoryLimitError);
  ledger.resize(address(0), 30);
  EXPECT_EQ(ledger.usage()[MemoryCategory::other], 60U);
  EXPECT_TRUE(ledger.remove(address(0)));
  EXPECT_EQ(ledger.total(), 30U) << "what it counted last is given back";
}

TEST(MemoryLedger, AnAddressThatComesAgainWithoutRemoveCountsOnce) {
  MemoryLedger ledger;
  ledger.add(address(0), 50);
  ledger.add(address(0), 30);
  EXPECT_EQ(ledger.total(), 30U);
}

TEST(MemoryLedger, RemembersThePeakAndItsMoment) {
  MemoryLedger ledger;
  memory_moment() = {3, "backward"};
  ledger.add(address(0), 100);
  {
    const MemoryScope scope(MemoryCategory::temporaries, "block");
    ledger.add(address(1), 50);
  }
  ledger.remove(address(0));
  memory_moment() = {4, "forward"};
  ledger.add(address(2), 20);
  const MemoryPeak peak = ledger.peak();
  EXPECT_EQ(peak.usage.total, 150U);
  EXPECT_EQ(peak.usage[MemoryCategory::temporaries], 50U);
  EXPECT_EQ(peak.usage[MemoryCategory::other], 100U);
  EXPECT_EQ(peak.step, 3);
  EXPECT_EQ(peak.phase, "backward");
  EXPECT_EQ(peak.unit, "block");
  ledger.reset_peak();
  EXPECT_EQ(ledger.peak().usage.total, 70U);
  ledger.add(address(3), 1);
  EXPECT_EQ(ledger.peak().usage.total, 71U);
  memory_moment() = {};
}

TEST(MemoryLedger, IntervalsHaveTheirOwnLargestMoments) {
  MemoryLedger ledger;
  ledger.add(address(0), 100);
  ledger.add(address(1), 50);
  ledger.remove(address(1));
  EXPECT_EQ(ledger.take_largest_total(), 150U);
  MemoryInterval interval = ledger.take_interval();
  EXPECT_EQ(total_of(interval.peak), 150U);
  EXPECT_EQ(total_of(interval.now), 100U);
  EXPECT_LE(interval.peak_time_ns, interval.now_ns);
  ledger.add(address(1), 10);
  ledger.remove(address(0));
  interval = ledger.take_interval();
  EXPECT_EQ(total_of(interval.peak), 110U);
  EXPECT_EQ(ledger.take_largest_total(), 110U) << "both are taken, each by itself";
  EXPECT_EQ(ledger.take_largest_total(), 10U) << "nothing happened";
  EXPECT_EQ(total_of(interval.now), 10U);
  EXPECT_EQ(total_of(ledger.take_interval().peak), 10U) << "nothing happened";
}

TEST(MemoryLedger, BeyondTheLimitSaysWhatIsAliveTheLargestFirst) {
  MemoryLedger ledger;
  ledger.set_limit(KiB(100));
  {
    const MemoryScope scope(MemoryCategory::parameters, "embedding");
    ledger.add(address(0), 20 << 10);
  }
  const MemoryScope scope(MemoryCategory::activations, "block.7");
  ledger.add(address(1), 60 << 10);
  memory_moment() = {5, "forward"};
  try {
    ledger.add(address(2), 40 << 10);
    FAIL() << "the limit did not hold";
  } catch (const MemoryLimitError& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.wanted(), KiB(40));
    EXPECT_EQ(error.limit(), KiB(100));
    EXPECT_NE(text.find("40.0 KiB of activations for block.7, step 5, forward"), std::string::npos) << text;
    EXPECT_NE(text.find("Alive: 60.0 KiB activations, 20.0 KiB parameters"), std::string::npos) << text;
    EXPECT_NE(text.find("60.0 KiB activations of block.7, 20.0 KiB parameters of embedding"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("--checkpoint-activations"), std::string::npos) << text;
  }
  memory_moment() = {};
  EXPECT_EQ(ledger.total(), 80U << 10) << "what did not fit is not charged";
  ledger.add(address(2), 20 << 10);  // exactly the limit
  EXPECT_THROW(ledger.charge({}, 1), MemoryLimitError);
  ledger.set_limit({});
  ledger.add(address(3), 1 << 30);
}

TEST(MemoryCharge, IsOnTheBooksAsLongAsItLives) {
  const std::uint64_t before = process_ledger().total();
  {
    MemoryCharge charge(MemoryCategory::communication, KiB(4), memory_unit("charged"));
    MemoryCharge moved = std::move(charge);
    EXPECT_EQ(process_ledger().total(), before + 4096);
    EXPECT_EQ(bytes_of(process_ledger().usage().of_unit("charged"), MemoryCategory::communication), 4096U);
    moved = MemoryCharge(MemoryCategory::parameters, KiB(1));
    EXPECT_EQ(process_ledger().total(), before + 1024);
  }
  EXPECT_EQ(process_ledger().total(), before);
}

TEST(MemoryLedger, ThreadsLoseNothing) {
  MemoryLedger ledger;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&ledger, t] {
      const MemoryScope scope(MemoryCategory::activations, std::string(1, static_cast<char>('a' + t)));
      for (int round = 0; round < 2000; ++round) {
        for (std::size_t i = 0; i < 8; ++i) ledger.add(address(32 * t + i), 10);
        ledger.take_interval();
        for (std::size_t i = 0; i < 8; ++i) ledger.remove(address(32 * t + i));
      }
      ledger.add(address(32 * t), 5);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.usage()[MemoryCategory::activations], 20U);
  EXPECT_LE(ledger.peak_total(), 4U * 80U);
  EXPECT_GE(ledger.peak_total(), 80U);
}

}  // namespace
}  // namespace rondo
