// Every algorithm on real data, over every torch-free channel.
#include "rondo/collective/executor.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_memory_channel.h"
#include "rondo/channel/shared_store.h"
#include "rondo/channel/store.h"
#include "rondo/channel/thread_channel.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/reduction.h"
#include "tests/channel/channels.h"
#include "tests/collective/schedule_data.h"
#include "tests/errors.h"

namespace rondo::collective::executor_test {
namespace {

using testing::expect_facts;

Wait soon() { return {Deadline::after(std::chrono::minutes(2)), nullptr}; }

void run_ranks(const std::string& kind, int size, const std::function<void(Channel&)>& body) {
  rondo::tests::run_channels(kind, size, [&](std::unique_ptr<Channel>& channel) { body(*channel); });
}

class ExecutorTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(All, ExecutorTest, ::testing::Values("threads", "shm"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ExecutorTest, EveryAlgorithmOperationAndWorldSize) {
  for (int world = 1; world <= 17; ++world) {
    run_ranks(GetParam(), world, [&](Channel& channel) {
      for (const Algorithm& algorithm : algorithms()) {
        for (const OperationKind operation : algorithm.operations) {
          for (const std::size_t elements : {0, 1, 5, 1003}) {
            if (world > 8 && elements < 1000) continue;
            ASSERT_EQ(run_and_compare(channel, algorithm.name, operation, DType::float32, Reduction::sum,
                                      elements, soon()),
                      "");
          }
        }
      }
    });
  }
}

TEST_P(ExecutorTest, EveryDTypeAndReduction) {
  constexpr int kWorld = 3;
  run_ranks(GetParam(), kWorld, [&](Channel& channel) {
    for (const Algorithm& algorithm : algorithms()) {
      for (const DType type : kAllDTypes) {
        for (const Reduction reduction : kAllReductions) {
          if (!supports(type, reduction)) continue;
          ASSERT_EQ(run_and_compare(channel, algorithm.name, OperationKind::all_reduce, type, reduction, 101,
                                    soon()),
                    "");
        }
        if (algorithm.has(OperationKind::reduce_scatter)) {
          ASSERT_EQ(run_and_compare(channel, algorithm.name, OperationKind::reduce_scatter, type,
                                    Reduction::sum, 100, soon()),
                    "");
        }
      }
      ASSERT_EQ(run_and_compare(channel, algorithm.name, OperationKind::reduce, DType::bfloat16,
                                Reduction::average, 10, soon()),
                "");
    }
  });
}

// Larger than rings and segments: pieces, pipelines, and messages that wait for room.
TEST_P(ExecutorTest, LargeBuffers) {
  run_ranks(GetParam(), 4, [&](Channel& channel) {
    for (const Algorithm& algorithm : algorithms()) {
      for (const OperationKind operation : algorithm.operations) {
        ASSERT_EQ(run_and_compare(channel, algorithm.name, operation, DType::float32, Reduction::sum, 300001,
                                  soon()),
                  "");
      }
    }
  });
}

TEST(ExecutorProcesses, EveryAlgorithmOverSharedMemory) {
  constexpr int kWorld = 3;
  const auto store = SharedStore::create();
  std::vector<pid_t> children;
  for (int rank = 0; rank < kWorld; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      std::string wrong;
      try {
        SharedMemoryChannel channel(*store, {"test", rank, kWorld, std::chrono::seconds(60)});
        for (const Algorithm& algorithm : algorithms()) {
          for (const OperationKind operation : algorithm.operations) {
            for (const std::size_t elements : {7, 200003}) {
              wrong += run_and_compare(channel, algorithm.name, operation, DType::bfloat16, Reduction::sum,
                                       elements, soon());
            }
          }
        }
      } catch (const std::exception& e) {
        wrong += e.what();
      }
      if (!wrong.empty()) fprintf(stderr, "rank %d: %s\n", rank, wrong.c_str());
      _exit(wrong.empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

std::vector<std::byte> noise(int rank, std::size_t elements) {
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    // Large values that cancel, and small ones that are lost or kept depending on the order.
    const float big = (i + static_cast<std::size_t>(rank)) % 3 == 0 ? 1e8F : -5e7F;
    values[i] =
        big + static_cast<float>((i * 2654435761U + static_cast<std::size_t>(rank) * 40503U) % 1000) * 0.37F;
  }
  std::vector<std::byte> bytes(elements * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST_P(ExecutorTest, RanksHaveSameBitsSomeInRankOrder) {
  constexpr int kWorld = 5;
  constexpr std::size_t kElements = 2000;
  std::vector<const std::byte*> sources;
  std::vector<std::vector<std::byte>> inputs;
  for (int rank = 0; rank < kWorld; ++rank) inputs.push_back(noise(rank, kElements));
  for (const auto& input : inputs) sources.push_back(input.data());
  std::vector<std::byte> in_order(inputs[0].size());
  std::byte* target = in_order.data();
  ReductionTask task;
  task.sources = sources;
  task.destinations = {&target, 1};
  task.elements = kElements;
  reduce(task);

  for (const Algorithm& algorithm : algorithms()) {
    std::vector<std::vector<std::byte>> results = inputs;
    run_ranks(GetParam(), kWorld, [&](Channel& channel) {
      ScheduleRequest request;
      request.world = kWorld;
      request.rank = channel.rank();
      request.bytes = {in_order.size()};
      execute(make_schedule(algorithm.name, request), channel,
              results[static_cast<std::size_t>(channel.rank())], DType::float32, Reduction::sum, soon());
    });
    for (const auto& result : results) EXPECT_TRUE(result == results[0]) << algorithm.name;
    const bool adds_in_rank_order = algorithm.name == "naive" || algorithm.name == "all_to_all" ||
                                    algorithm.name == "direct" || algorithm.name == "hierarchical";
    EXPECT_EQ(results[0] == in_order, adds_in_rank_order) << algorithm.name;
  }
}

TEST_P(ExecutorTest, RanksThatRunDifferentCollectivesFindOut) {
  std::atomic<int> found = 0;
  run_ranks(GetParam(), 2, [&](Channel& channel) {
    ScheduleRequest request;
    request.world = 2;
    request.rank = channel.rank();
    request.bytes = {64};
    std::vector<std::byte> data(64);
    // The same messages, but one side adds and the other takes the maximum.
    const Reduction reduction = channel.rank() == 0 ? Reduction::sum : Reduction::maximum;
    try {
      execute(make_schedule("ring", request), channel, data, DType::float32, reduction, soon());
    } catch (const MismatchError&) {
      ++found;
    }
  });
  EXPECT_EQ(found, 2);
}

TEST(ExecutorUsage, WhatDoesNotFitIsNamed) {
  run_ranks("threads", 1, [](Channel& channel) {
    ScheduleRequest request;
    request.bytes = {64};
    std::vector<std::byte> data(64);
    const auto message = [](const std::function<void()>& body) {
      return testing::message_of<UsageError>(body);
    };
    const Schedule schedule = make_schedule("ring", request);
    expect_facts(message([&] { Executor(schedule, DType::float64, Reduction::sum); }),
                 {"4 bytes", "float64", "8"});
    expect_facts(message([&] { Executor(schedule, DType::int32, Reduction::average); }), {"AVG", "int32"});
    expect_facts(message([&] {
                   execute(schedule, channel, std::span(data).first(32), DType::float32, Reduction::sum,
                           soon());
                 }),
                 {"64 bytes", "32"});
    request.world = 2;
    expect_facts(message([&] {
                   execute(make_schedule("ring", request), channel, data, DType::float32, Reduction::sum,
                           soon());
                 }),
                 {"rank 0 of 2", "rank 0 of 1"});
  });
}

}  // namespace
}  // namespace rondo::collective::executor_test
