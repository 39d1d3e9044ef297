// Plans over c10d point-to-point: what rows of the benchmarks call channel tcp.
#include "rondo/backend/point_to_point_channel.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <atomic>
#include <mutex>
#include <thread>

#include "rondo/backend/registry.h"
#include "rondo/backend/store_adapter.h"
#include "rondo/base/error.h"
#include "rondo/channel/shared_store.h"
#include "tests/collective/plan_data.h"
#include "tests/rank_threads.h"

namespace rondo {
namespace {

using collective::Algorithm;

Wait soon() { return {Deadline::after(std::chrono::minutes(2)), nullptr}; }

std::unique_ptr<Channel> connect(const std::string& engine, const c10::intrusive_ptr<c10d::Store>& store,
                                 int rank, int size) {
  BackendRequest request;
  request.group_name = "test";
  request.rank = rank;
  request.size = size;
  for (int r = 0; r < size; ++r) request.world_ranks.push_back(r);
  request.store = store;
  return std::make_unique<PointToPointChannel>(
      make_backend(engine, request), std::make_shared<StoreFromC10d>(store), "test", std::chrono::minutes(1));
}

void run_ranks(const std::string& engine, int size, const std::function<void(Channel&)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  rondo::tests::run_rank_threads(size, [&](int rank) { body(*connect(engine, store, rank, size)); });
}

bool has_engine(const std::string& engine) {
  const std::vector<std::string> names = backend_names();
  return std::find(names.begin(), names.end(), engine) != names.end();
}

class PointToPointChannelTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_engine(GetParam())) GTEST_SKIP() << "this build has no " << GetParam();
  }
};

INSTANTIATE_TEST_SUITE_P(All, PointToPointChannelTest, testing::Values("gloo", "native"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(PointToPointChannelTest, EveryAlgorithmOperationAndWorldSize) {
  for (const int world : {1, 2, 3, 5, 8}) {
    run_ranks(GetParam(), world, [&](Channel& channel) {
      for (const Algorithm& algorithm : collective::algorithms()) {
        for (const OperationKind operation : algorithm.operations) {
          for (const std::size_t elements : {0, 5, 1003}) {
            ASSERT_EQ(collective::run_and_compare(channel, algorithm.name, operation, DType::float32,
                                                  Reduction::sum, elements, soon()),
                      "");
          }
        }
      }
    });
  }
}

TEST_P(PointToPointChannelTest, EveryDTypeAndReductionAndALargeBuffer) {
  run_ranks(GetParam(), 3, [&](Channel& channel) {
    for (const Algorithm& algorithm : collective::algorithms()) {
      for (const DType type : collective::kAllDTypes) {
        for (const Reduction reduction : {Reduction::sum, Reduction::average, Reduction::maximum}) {
          if (!supports(type, reduction)) continue;
          ASSERT_EQ(collective::run_and_compare(channel, algorithm.name, OperationKind::all_reduce, type,
                                                reduction, 101, soon()),
                    "");
        }
      }
      ASSERT_EQ(collective::run_and_compare(channel, algorithm.name, OperationKind::all_reduce,
                                            DType::float32, Reduction::sum, 300001, soon()),
                "");
    }
  });
}

// Rank 2 of 4 ends in its own way after two runs; the others run on. Ranks are processes.
class PointToPointFaults : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_engine("gloo")) GTEST_SKIP() << "this build has no gloo";
  }

  static constexpr int kWorld = 4;
  static constexpr int kVictim = 2;

  template <class Expected>
  static bool survives(const std::string& algorithm, const c10::intrusive_ptr<c10d::Store>& store, int rank,
                       Duration limit, int signal) {
    try {
      const auto channel = connect("gloo", store, rank, kWorld);
      for (int run = 0; run < 1000; ++run) {
        if (rank == kVictim && run == 2) kill(getpid(), signal);
        const Wait wait{Deadline::after(limit), nullptr};
        const std::string wrong = collective::run_and_compare(*channel, algorithm, OperationKind::all_reduce,
                                                              DType::float32, Reduction::sum, 40, wait);
        if (!wrong.empty()) throw Error(wrong);
      }
    } catch (const Expected& e) {
      if (e.ranks() == std::vector<int>{kVictim}) return true;
      fprintf(stderr, "%s, rank %d blames another: %s\n", algorithm.c_str(), rank, e.what());
    } catch (const std::exception& e) {
      fprintf(stderr, "%s, rank %d: another error: %s\n", algorithm.c_str(), rank, e.what());
    }
    return false;
  }

  // All algorithms at the same time: they mostly wait.
  template <class Expected>
  static void expect_named(Duration limit, int signal) {
    std::vector<std::pair<std::string, std::vector<pid_t>>> jobs;
    std::vector<std::shared_ptr<Store>> stores;
    for (const Algorithm& algorithm : collective::algorithms()) {
      stores.push_back(SharedStore::create());
      const auto store = c10::make_intrusive<StoreForC10d>(stores.back());
      std::vector<pid_t> children;
      for (int rank = 0; rank < kWorld; ++rank) {
        const pid_t child = fork();
        if (child == 0) _exit(survives<Expected>(algorithm.name, store, rank, limit, signal) ? 0 : 1);
        children.push_back(child);
      }
      jobs.emplace_back(algorithm.name, children);
    }
    for (const auto& [algorithm, children] : jobs) {
      for (int rank = 0; rank < kWorld; ++rank) {
        if (rank == kVictim) continue;
        int status = 0;
        waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
        EXPECT_EQ(status, 0) << algorithm << ", rank " << rank;
      }
      kill(children[kVictim], SIGKILL);
      waitpid(children[kVictim], nullptr, 0);
    }
  }
};

// Gloo may write to a connection whose other end has just died: that must be an error, not the end of this
// process.
TEST_F(PointToPointFaults, ABrokenPipeIsNotTheEndOfTheProcess) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGPIPE, SIG_DFL);
    connect("gloo", store, 0, 1);
    raise(SIGPIPE);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(PointToPointFaults, AKilledProcessIsNamedByAll) {
  expect_named<PeerLostError>(std::chrono::minutes(1), SIGKILL);
}

TEST_F(PointToPointFaults, AStoppedProcessIsNamedByAllAtTheDeadline) {
  expect_named<CommunicationError>(std::chrono::seconds(2), SIGSTOP);
}

}  // namespace
}  // namespace rondo
