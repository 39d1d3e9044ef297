// Schedules over c10d point-to-point: "channel tcp" in the benchmarks.
#include "rondo/backend/point_to_point.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <atomic>

#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "rondo/channel/shared_store.h"
#include "tests/collective/schedule_data.h"
#include "tests/collective/schedule_faults.h"
#include "tests/rank_threads.h"

namespace rondo::point_to_point_channel_test {
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

class PointToPointChannelTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_engine(GetParam())) GTEST_SKIP() << "this build has no " << GetParam();
  }
};

INSTANTIATE_TEST_SUITE_P(All, PointToPointChannelTest, ::testing::Values("gloo", "native"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(PointToPointChannelTest, EveryAlgorithmOperationAndWorldSize) {
  // ExecutorTest runs every size up to 17 over the other channels.
  for (const int world : {1, 2, 3, 4, 5, 8, 9, 13}) {
    run_ranks(GetParam(), world, [&](Channel& channel) {
      for (const Algorithm& algorithm : collective::algorithms()) {
        for (const OperationKind operation : algorithm.operations) {
          for (const std::size_t elements : {0, 5, 1003}) {
            if (world > 8 && elements < 1000) continue;
            ASSERT_EQ(collective::run_and_compare(channel, algorithm.name, operation, DType::float32,
                                                  Reduction::sum, elements, soon()),
                      "");
          }
        }
      }
    });
  }
}

TEST_P(PointToPointChannelTest, EveryDTypeAndReductionWithLargeBuffer) {
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

// Ranks as processes, one of which is killed or stopped: rank 2 at its second exchange in an all_reduce by
// each algorithm, or all ranks, operations and exchanges (`make faults`).
class PointToPointFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_engine("gloo")) GTEST_SKIP() << "this build has no gloo";
  }

  // Enough to fill the connections to a rank that no longer reads.
  static constexpr std::size_t kElements = 4000;

  static std::vector<collective::FaultCase> cases() {
    if (collective::all_faults()) return collective::fault_cases({});
    std::vector<collective::FaultCase> part;
    for (const collective::FaultCase& what : collective::fault_cases({OperationKind::all_reduce})) {
      if (part.empty() || part.back().algorithm != what.algorithm) {
        part.push_back(what);
      } else if (what.when == 1) {
        part.back() = what;
      }
    }
    return part;
  }

  static collective::Connect over_gloo() {
    const std::shared_ptr<Store> meeting = SharedStore::create();
    return [meeting](int rank, const auto& use) {
      const auto channel =
          connect("gloo", c10::make_intrusive<StoreForC10d>(meeting), rank, collective::kFaultWorld);
      // No rank may end while others still connect; Gloo waits for them.
      if (meeting->add("connected", 1) == collective::kFaultWorld) meeting->set("all connected", "");
      meeting->get("all connected", soon());
      use(*channel);
    };
  }

  template <class Expected>
  static void expect_named(int signal, Duration limit, std::size_t at_once) {
    const std::vector<collective::FaultCase> faults = cases();
    EXPECT_GE(faults.size(), collective::algorithms().size());
    EXPECT_EQ(collective::run_faults<Expected>(faults, signal, limit, at_once, kElements, over_gloo),
              std::vector<std::string>());
  }
};

// Gloo may write to a connection whose other end has just died: that must be an error, and must not end this
// process.
TEST_F(PointToPointFaults, BrokenPipeDoesNotEndTheProcess) {
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
  expect_named<PeerLostError>(SIGKILL, collective::kNever, 1);
}

// Most of the time is waiting, so many run at once. A survivor with closed connections to its neighbour
// reports a lost peer; one that waits to the deadline reports a timeout.
TEST_F(PointToPointFaults, AllRanksNameStoppedProcessAtDeadline) {
  expect_named<CommunicationError>(SIGSTOP, std::chrono::seconds(15), 10);
}

// Ranks begin to wait at different times. The first one to reach its deadline asks which ranks the others
// wait for, and they may not have noticed the failure yet.
TEST_F(PointToPointFaults, RankWithLaterDeadlineIsNotBlamed) {
  std::atomic<int> raised = 0;
  run_ranks("gloo", 3, [&](Channel& channel) {
    if (channel.rank() == 2) {  // hangs
      for (int now = raised; now < 2; now = raised) raised.wait(now);
      return;
    }
    // Rank 0 waits for rank 1, and rank 1 for rank 2.
    std::vector<std::byte> bytes(8);
    const Duration patience = std::chrono::seconds(channel.rank() == 0 ? 3 : 4);
    try {
      channel.recv(channel.rank() + 1, 0, bytes, {Deadline::after(patience), nullptr});
      ADD_FAILURE() << "received something";
    } catch (const CommunicationError& e) {
      EXPECT_EQ(e.ranks(), std::vector<int>{2}) << e.what();
    }
    ++raised;
    raised.notify_all();
  });
}

}  // namespace
}  // namespace rondo::point_to_point_channel_test
