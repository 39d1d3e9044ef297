#include "rondo/collective/shared_memory/slot_all_reduce.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/collective/shared_memory/engine.h"
#include "tests/collective/engine_threads.h"
#include "tests/sleeping.h"

// Blocking small all_reduces, which do not become an Operation unless they have to wait.
namespace rondo::shared_memory::slot_all_reduce_test {
namespace {

constexpr auto kTimeout = std::chrono::seconds(60);

void run_ranks(int size, const std::function<void(Engine&)>& body) {
  run_engine_threads(size, nullptr, body);
}

CollectiveRequest all_reduce_of(std::vector<float>& data) {
  CollectiveRequest request;
  request.kind = OperationKind::all_reduce;
  request.type = DType::float32;
  request.elements = data.size();
  request.input.base = request.output.base = reinterpret_cast<std::byte*>(data.data());
  return request;
}

// Sums rank + round over the ranks in each element, and checks the sums.
void sum(Engine& engine, std::size_t elements, int round) {
  std::vector<float> data(elements, static_cast<float>(engine.rank() + round));
  engine.run(all_reduce_of(data), kTimeout);
  const int expected = engine.size() * (engine.size() - 1) / 2 + engine.size() * round;
  for (const float value : data) ASSERT_EQ(value, static_cast<float>(expected)) << "round " << round;
}

TEST(SlotAllReduce, TakesWhatFitsTheSlot) {
  std::vector<float> data(16);
  EXPECT_TRUE(is_slot_all_reduce(all_reduce_of(data)));
  data.resize(17);
  EXPECT_FALSE(is_slot_all_reduce(all_reduce_of(data)));
  data.resize(1);
  CollectiveRequest request = all_reduce_of(data);
  request.kind = OperationKind::broadcast;
  EXPECT_FALSE(is_slot_all_reduce(request));
  request = all_reduce_of(data);
  request.weighted = true;
  EXPECT_FALSE(is_slot_all_reduce(request));
}

// More operations than slots, between larger ones, which use tickets of several chunks.
TEST(SlotAllReduce, AlternatesWithLargerOperations) {
  for (const int size : {1, 2, 3}) {
    run_ranks(size, [](Engine& engine) {
      for (int round = 0; round < 3 * static_cast<int>(kSlots); ++round) {
        for (const std::size_t elements : {1, 10, 16, 0}) sum(engine, elements, round);
        if (round % 16 == 0) sum(engine, 3 * kChunkBytes / sizeof(float) + 1, round);
        if (round % 5 == 0) sum(engine, 1000, round);
      }
    });
  }
}

// The others give up spinning, and sleep, before the late rank comes.
TEST(SlotAllReduce, WaitsForALateRank) {
  constexpr int kRanks = 3;
  constexpr int kRounds = 6;
  std::array<std::array<std::atomic<pid_t>, kRanks>, kRounds> arrived{};  // threads by round and rank
  run_ranks(kRanks, [&](Engine& engine) {
    for (int round = 0; round < kRounds; ++round) {
      auto& here = arrived[static_cast<std::size_t>(round)];
      for (int rank = 0; round % kRanks == engine.rank() && rank < kRanks; ++rank) {
        const std::atomic<pid_t>& thread = here[static_cast<std::size_t>(rank)];
        while (rank != engine.rank() && (thread.load() == 0 || !tests::is_sleeping(thread.load())))
          std::this_thread::yield();
      }
      here[static_cast<std::size_t>(engine.rank())].store(gettid());
      sum(engine, 4, round);
    }
  });
}

TEST(SlotAllReduce, NamesRanksThatDiffer) {
  run_ranks(2, [](Engine& engine) {
    sum(engine, 2, 0);
    std::vector<float> data(engine.rank() == 0 ? 2 : 3);
    try {
      engine.run(all_reduce_of(data), kTimeout);
      FAIL() << "different sizes were summed";
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("all_reduce(2 x float32"), std::string::npos) << text;
      EXPECT_NE(text.find("all_reduce(3 x float32"), std::string::npos) << text;
    }
    EXPECT_THROW(engine.run(all_reduce_of(data), kTimeout), Error);
  });
}

TEST(SlotAllReduce, FailsAfterAPeersFailure) {
  std::latch summed(2);
  run_ranks(2, [&](Engine& engine) {
    sum(engine, 1, 0);
    summed.arrive_and_wait();
    std::vector<float> data(1);
    if (engine.rank() == 0) {
      engine.abort("the test gives up");
    } else {
      EXPECT_THROW(engine.run(all_reduce_of(data), kTimeout), Error);
    }
  });
}

}  // namespace
}  // namespace rondo::shared_memory::slot_all_reduce_test
