// The watch over operations between devices with many threads: ranks are threads of one process, so that the
// thread sanitizer sees all of them (scripts/sanitize.sh tsan). failures_test.cpp has ranks as processes.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <latch>
#include <thread>

#include "rondo/backend/engine/failure_record.h"
#include "rondo/base/error.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/sim/ranks.h"

namespace rondo::sim::watch_test {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;
using testing::expect_facts;

constexpr int kRanks = 3;
constexpr int kRounds = 40;

// Runs in a separate process, as everything that uses a device must.
int with_ranks_as_threads(const std::function<void(Context&)>& body) {
  return tests::run_rank_processes(1, [&](Store& /*meeting*/, int /*rank*/) {
    replace_card_engine(kModule);
    device(0);
    testing::run_ranks(kRanks, "nccl", body);
  });
}

at::Tensor ones_on(int rank) {
  return at::ones({4}, at::TensorOptions().dtype(at::kFloat).device(device(rank)));
}

Work start_sum(at::Tensor tensor, const Group& group) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  return group.backend()->allreduce(tensors, {});
}

float value_of(const at::Tensor& tensor) { return tensor.cpu()[0].item<float>(); }

// Sums over the group; a second thread waits for the result, too.
void add_up(const Group& group, int rank) {
  const at::Tensor tensor = ones_on(rank);
  const Work work = start_sum(tensor, group);
  std::thread second([&] {
    work->isCompleted();
    work->wait();
    throw_if_failed(*group.backend());
  });
  work->wait();
  second.join();
  EXPECT_EQ(value_of(tensor), static_cast<float>(group.size()));
  throw_if_failed(*group.backend());
}

// Sends to the next rank and receives from the previous one, as one operation.
void pass_on(const Group& group, int rank) {
  const int size = group.size();
  std::vector<at::Tensor> sent{ones_on(rank) * rank}, received{ones_on(rank)};
  c10d::Backend& engine = *group.backend();
  engine.startCoalescing();
  engine.send(sent, (rank + 1) % size, 0);
  engine.recv(received, (rank + size - 1) % size, 0);
  engine.endCoalescing()->wait();
  EXPECT_EQ(value_of(received[0]), static_cast<float>((rank + size - 1) % size));
}

TEST(SimWatch, OperationsOfSeveralGroupsAtOnce) {
  const auto body = [](Context& context) {
    const std::vector<Group> groups{context.world(), context.new_group({0, 1}), context.new_group({1, 2})};
    for (int round = 0; round < kRounds; ++round) {
      for (const Group& group : groups) {
        if (!group.member()) continue;
        add_up(group, context.rank());
        group.backend()->setTimeout(std::chrono::seconds(60 + round));
      }
      pass_on(context.world(), context.rank());
    }
    EXPECT_FALSE(has_lost_results(*context.world().backend()));
  };
  EXPECT_EQ(with_ranks_as_threads(body), 0);
}

TEST(SimWatch, RanksLeaveWhileOthersGoOn) {
  const auto body = [](Context& context) {
    const Group pair = context.new_group({0, 1});
    add_up(context.world(), context.rank());
    if (!pair.member()) return;  // leaves the job
    for (int round = 0; round < kRounds; ++round) add_up(pair, context.rank());
  };
  EXPECT_EQ(with_ranks_as_threads(body), 0);
}

// Checks the errors of a collective without rank 2. Threads wait for it, query its completion, and start
// other collectives.
template <class Failure>
void expect_failure(const Group& group, const Group& pair, int rank) {
  const at::Tensor tensor = ones_on(rank);
  const Work work = start_sum(tensor, group);
  std::atomic<int> seen = 0;
  const auto expect_named = [&](const auto& call) {
    try {
      call();
      ADD_FAILURE() << "no error on rank " << rank;
    } catch (const Failure& error) {
      EXPECT_EQ(error.ranks(), std::vector{2}) << error.what();
      ++seen;
    }
  };
  const auto wait_and_look = [&] {
    work->isCompleted();
    work->wait();      // returns at once
    value_of(tensor);  // waits for the stream until the communicator is aborted
    throw_if_failed(*group.backend());
  };
  std::thread second([&] { expect_named(wait_and_look); });
  expect_named(wait_and_look);
  second.join();
  EXPECT_EQ(seen, 2);
  expect_named([&] { start_sum(ones_on(rank), group); });
  expect_facts(testing::message_of<CommunicationError>([&] { start_sum(ones_on(rank), pair); }),
               {pair.name().c_str(), "rank 2"});
}

TEST(SimWatch, OperationsNameDepartedRank) {
  const auto body = [](Context& context) {
    const Group pair = context.new_group({0, 1});
    add_up(context.world(), context.rank());
    if (pair.member()) expect_failure<PeerLostError>(context.world(), pair, context.rank());
  };
  EXPECT_EQ(with_ranks_as_threads(body), 0);
}

TEST(SimWatch, NamesMissingRankAtTheDeadline) {
  std::latch named(kRanks - 1);
  const auto body = [&](Context& context) {
    const Group pair = context.new_group({0, 1});
    add_up(context.world(), context.rank());
    if (!pair.member()) return named.wait();
    context.world().backend()->setTimeout(std::chrono::seconds(3));
    expect_failure<TimeoutError>(context.world(), pair, context.rank());
    named.count_down();
  };
  EXPECT_EQ(with_ranks_as_threads(body), 0);
}

}  // namespace
}  // namespace rondo::sim::watch_test
