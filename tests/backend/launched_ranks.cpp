// One rank of a job that a launcher has started, for engines whose ranks must be separate processes:
//
//   RONDO_TEST_BACKEND=mpi mpirun -n 3 launched_ranks
//
// The other tests run ranks as threads. tests/integration/mpi_test.py runs these.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <cstdlib>

#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/point_to_point.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "tests/backend/rank_order_sums.h"
#include "tests/backend/request_calls.h"
#include "tests/collective/schedule_data.h"
#include "tests/collective/schedule_faults.h"

namespace rondo {
namespace {

using collective::Algorithm;
using collective::FaultCase;

// Small enough to be sent before the receiver is posted.
constexpr std::size_t kFaultElements = 40;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Wait soon() { return {Deadline::after(std::chrono::minutes(2)), nullptr}; }

class LaunchedRanks : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    context_ = std::make_unique<Context>(
        init({.backend = variable("RONDO_TEST_BACKEND"), .timeout = std::chrono::minutes(2)}));
  }
  static void TearDownTestSuite() {
    context_->shutdown();
    context_.reset();
  }
  static const Context& context() { return *context_; }
  static const Group& world() { return context_->world(); }

  // Uses a communicator of its own, so that the state of a failed one does not matter.
  static std::unique_ptr<Channel> connect(const std::string& name) {
    BackendRequest request;
    request.group_name = name;
    request.rank = world().rank();
    request.size = world().size();
    request.world_ranks = world().ranks();
    request.store = c10::make_intrusive<c10d::PrefixStore>(name, world().store());
    const auto store = std::make_shared<StoreFromC10d>(request.store);
    return std::make_unique<PointToPointChannel>(make_backend(variable("RONDO_TEST_BACKEND"), request), store,
                                                 name, std::chrono::minutes(2));
  }

 private:
  static std::unique_ptr<Context> context_;
};

std::unique_ptr<Context> LaunchedRanks::context_;

TEST_F(LaunchedRanks, RunEveryAlgorithmOperationAndSize) {
  const auto channel = connect("schedules");
  int schedules = 0;
  for (const Algorithm& algorithm : collective::algorithms()) {
    for (const OperationKind operation : algorithm.operations) {
      for (const std::size_t elements : {0, 5, 70001}) {
        ASSERT_EQ(collective::run_and_compare(*channel, algorithm.name, operation, DType::float32,
                                              Reduction::sum, elements, soon()),
                  "");
        ++schedules;
      }
    }
  }
  printf("rank %d of %d, %d on this host: %d schedules are right\n", channel->rank(), channel->size(),
         context().local_world_size(), schedules);
}

TEST_F(LaunchedRanks, RunEveryDType) {
  const auto channel = connect("types");
  for (const Algorithm& algorithm : collective::algorithms()) {
    for (const DType type : collective::kAllDTypes) {
      const Reduction reduction =
          supports(type, Reduction::average) ? Reduction::average : Reduction::maximum;
      ASSERT_EQ(collective::run_and_compare(*channel, algorithm.name, OperationKind::all_reduce, type,
                                            reduction, 101, soon()),
                "");
    }
  }
}

TEST_F(LaunchedRanks, AddInTheOrderOfRanks) {
  ASSERT_TRUE(context().deterministic()) << "RONDO_DETERMINISTIC=1 is missing";
  testing::expect_sums_in_rank_order(context(), 1003);
  testing::expect_sums_in_rank_order(context(), 1);
}

std::vector<at::Tensor> zeros_for_all(int ranks, std::int64_t elements) {
  std::vector<at::Tensor> tensors;
  for (int rank = 0; rank < ranks; ++rank) tensors.push_back(at::zeros({elements}));
  return tensors;
}

TEST_F(LaunchedRanks, GatherBetweenPartsOfOneBuffer) {
  const at::Tensor flat = at::zeros({1 + 2 * world().size()});
  at::Tensor input = flat.narrow(0, 0, 1);
  for (const std::int64_t begin : {1, 0}) {  // apart from the input; overlapping it in another rank's place
    at::Tensor output = flat.narrow(0, begin, world().size());
    input.fill_(world().rank() + 5);
    world().backend()->_allgather_base(output, input)->wait();
    EXPECT_TRUE(at::equal(output, at::arange(world().size()) + 5)) << begin << ": " << output;
  }
}

TEST_F(LaunchedRanks, GatherAndReduceAsOtherEnginesDo) { testing::expect_calls_of_c10d(context()); }

TEST_F(LaunchedRanks, GatherWhatIsLazilyConjugated) {
  const at::Tensor plain = at::complex(at::ones({3}), at::full({3}, world().rank() + 1.0F));
  const std::vector<at::Tensor> gathered = all_gather(plain.conj(), world());
  for (std::size_t rank = 0; rank < gathered.size(); ++rank)
    EXPECT_EQ(at::imag(gathered[rank])[2].item<float>(), -static_cast<float>(rank + 1));
}

TEST_F(LaunchedRanks, RefuseOutputsOfAnotherShape) {
  const auto backend = world().backend();
  const int size = world().size();
  std::vector<std::vector<at::Tensor>> lists{zeros_for_all(size, 3)};
  std::vector<at::Tensor> tensors{at::ones({4})};
  EXPECT_THROW(backend->allgather(lists, tensors), UsageError);
  EXPECT_THROW(backend->reduce_scatter(tensors, lists), UsageError);
  if (world().rank() == 0) {
    EXPECT_THROW(backend->gather(lists, tensors), UsageError);
    EXPECT_THROW(backend->scatter(tensors, lists), UsageError);
  }
  at::Tensor output = at::zeros({4 * size}, at::kChar);
  EXPECT_THROW(backend->_allgather_base(output, tensors.front()), UsageError);
  EXPECT_THROW(backend->_reduce_scatter_base(tensors.front(), output), UsageError);
  barrier(world());
}

// Rank 0's output can no longer hold the result when the others begin.
TEST_F(LaunchedRanks, TellWhatGoesWrongAfterMpi) {
  StoreFromC10d store(world().store());
  if (world().rank() > 0) store.get("resized", soon());
  std::vector<std::vector<at::Tensor>> outputs{zeros_for_all(world().size(), 4)};
  std::vector<at::Tensor> inputs{at::ones({4})};
  const auto work = world().backend()->allgather(outputs, inputs);
  if (world().rank() == 0) {
    outputs.front().front().resize_({3});
    store.set("resized", "");
    EXPECT_THROW(work->wait(), std::exception);
    EXPECT_FALSE(work->isSuccess());
  } else {
    work->wait();
  }
  barrier(world());
}

TEST_F(LaunchedRanks, RefuseSplitsThatDoNotFit) {
  const auto backend = world().backend();
  const auto size = static_cast<std::size_t>(world().size());
  at::Tensor input = at::ones({world().size()});
  at::Tensor output = at::zeros({world().size()});
  std::vector<std::int64_t> ones(size, 1);
  std::vector<std::int64_t> many(size, 4);
  std::vector<std::int64_t> fewer(size - 1, 1);
  std::vector<std::int64_t> negative = ones;
  negative[0] = 3;
  negative[1] = -1;
  for (auto* wrong : {&many, &fewer, &negative}) {
    EXPECT_THROW(backend->alltoall_base(output, input, *wrong, ones), UsageError);
    EXPECT_THROW(backend->alltoall_base(output, input, ones, *wrong), UsageError);
  }
  std::vector<std::int64_t> equal;
  at::Tensor odd = at::ones({world().size() + 1});
  EXPECT_THROW(backend->alltoall_base(output, odd, equal, equal), UsageError);
  backend->alltoall_base(output, input, ones, equal)->wait();
  EXPECT_TRUE(at::equal(output, input));
}

// Rank 2 in some algorithms, or in every exchange of all (`make faults`). The stopped rank continues after
// all others have raised, for the next fault.
std::vector<FaultCase> faults_to_stop_by() {
  if (collective::all_faults()) return collective::every_exchange(collective::scheduled_operations(), {2});
  std::vector<FaultCase> part;
  for (const FaultCase& what : collective::every_exchange({OperationKind::all_reduce}, {2})) {
    const bool chosen = what.algorithm == "ring" || what.algorithm == "hierarchical";
    if (chosen && what.when == 1) part.push_back(what);
  }
  return part;
}

// Contexts number their groups alike, so their names are equal. The keys of one context in the launcher's
// store must not be taken for those of another.
TEST(LaunchedContexts, GroupsOfTheSameNameMeetApart) {
  for (const int epoch : {1, 2}) {
    const Context whole = init(
        {.backend = variable("RONDO_TEST_BACKEND"), .epoch = epoch, .timeout = std::chrono::seconds(20)});
    for (int part = 0; part < 2; ++part) {
      const Context context = whole.within(whole.world());
      const Group group = context.new_group(context.world().ranks());
      at::Tensor sum = at::ones({1});
      all_reduce(sum, group);
      EXPECT_EQ(sum.item<float>(), static_cast<float>(group.size()));
    }
    barrier(whole.world());
  }
}

struct WentOn {};

TEST_F(LaunchedRanks, AllRanksNameStoppedRankAtDeadline) {
  ASSERT_EQ(world().size(), collective::kFaultWorld);
  const int rank = world().rank();
  int number = 0;
  for (const FaultCase& what : faults_to_stop_by()) {
    const std::string name = str("fault ", number++);
    const auto channel = connect(name);
    StoreFromC10d store(c10::make_intrusive<c10d::PrefixStore>(name, world().store()));
    if (rank == what.victim) store.set("stopped process", std::to_string(getpid()));
    barrier(world());
    collective::FaultyChannel faulty(*channel, rank == what.victim ? what.when : -1,
                                     collective::Moment::within, [] {
                                       raise(SIGSTOP);
                                       throw WentOn();
                                     });
    try {
      collective::run_for_ever(what, faulty, std::chrono::seconds(10), kFaultElements);
    } catch (const WentOn&) {
    } catch (const TimeoutError& e) {
      EXPECT_EQ(e.ranks(), std::vector<int>{what.victim})
          << text(what) << ", rank " << rank << ": " << e.what();
    } catch (const std::exception& e) {
      ADD_FAILURE() << text(what) << ", rank " << rank << ", another error: " << e.what();
    }
    if (rank != what.victim && store.add("raised", 1) == collective::kFaultWorld - 1) {
      kill(static_cast<pid_t>(parse_integer(store.get("stopped process", soon()), "pid")), SIGCONT);
    }
    barrier(world());
  }
  // mpirun ends the other ranks when the first one exits without MPI_Finalize, which can no longer be called.
  if (!HasFailure()) printf("rank %d: %d faults are named\n", rank, number);
  fflush(stdout);
  barrier(world());
}

// For launchers that end a job themselves when one of its processes dies. RONDO_TEST_FAULT is the number of
// the fault; without it the test prints the number of faults.
TEST_F(LaunchedRanks, AKilledRankEndsTheJob) {
  const std::vector<FaultCase> faults = collective::every_exchange(collective::scheduled_operations(), {2});
  const std::string chosen = variable("RONDO_TEST_FAULT");
  if (chosen.empty()) {
    printf("%zu faults to kill by\n", faults.size());
    return;
  }
  ASSERT_EQ(world().size(), collective::kFaultWorld);
  const FaultCase& what = faults.at(static_cast<std::size_t>(parse_integer(chosen, "RONDO_TEST_FAULT")));
  const auto channel = connect("killed");
  collective::FaultyChannel faulty(*channel, world().rank() == what.victim ? what.when : -1,
                                   collective::Moment::within, [] { raise(SIGKILL); });
  collective::run_for_ever(what, faulty, collective::kNever, kFaultElements);
}

}  // namespace
}  // namespace rondo
