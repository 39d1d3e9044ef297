// Ranks of several hosts that disagree, are missing, or are killed.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include "rondo/backend/collectives.h"
#include "rondo/backend/engine/store_adapter.h"
#include "rondo/backend/gloo/factory.h"
#include "rondo/backend/rendezvous.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"
#include "tests/backend/host_layouts.h"
#include "tests/backend/ranks.h"
#include "tests/collective/faulty_job.h"

namespace rondo::hierarchical_failures_test {
namespace {

using host_layouts::run_layout;

// Checks that every rank gets an error of the type, naming both sides.
void expect_on_all(const std::vector<int>& hosts, const std::function<void(Context&)>& mistake,
                   const std::vector<std::string>& parts) {
  std::atomic<int> seen = 0;
  run_layout(hosts, [&](Context& context) {
    try {
      mistake(context);
      ADD_FAILURE() << "no error on rank " << context.rank();
    } catch (const CommunicationError& e) {
      ++seen;
      for (const std::string& part : parts)
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
    // The error is final.
    at::Tensor tensor = at::ones({1});
    EXPECT_THROW(all_reduce(tensor, context.world()), CommunicationError);
  });
  EXPECT_EQ(seen, static_cast<int>(hosts.size()));
}

TEST(Hierarchical, RanksThatDisagreeAreToldOnBothHosts) {
  expect_on_all({0, 0, 1, 1},
                [](Context& context) {
                  at::Tensor tensor = at::ones({context.rank() < 2 ? 50000 : 60000});
                  all_reduce(tensor, context.world());
                },
                {"50000 x float32", "60000 x float32"});
  expect_on_all({0, 1, 0, 1},
                [](Context& context) {
                  at::Tensor tensor = at::ones({100});
                  if (context.rank() % 2 == 0) {
                    all_reduce(tensor, context.world());
                  } else {
                    broadcast(tensor, context.world());
                  }
                },
                {"all_reduce(100 x float32", "broadcast(100 x float32"});
  expect_on_all({0, 0, 1, 1},
                [](Context& context) {
                  at::Tensor tensor = at::ones({context.rank() == 3 ? 7 : 8});
                  all_reduce(tensor, context.world());
                },
                {"8 x float32", "7 x float32"});
  expect_on_all({0, 1, 1},
                [](Context& context) {
                  std::vector<at::Tensor> inputs(3, at::ones({context.rank() == 1 ? 7 : 8}));
                  std::vector<at::Tensor> outputs(3);
                  for (at::Tensor& output : outputs) output = at::ones({8});
                  if (context.rank() == 1) outputs[1] = at::ones({7});
                  all_to_all(outputs, inputs, context.world());
                },
                {"expects 32 bytes from rank 1 on host 1", "which sends 28"});
}

// No rank of the other host has the local rank of rank 1, which communicates with rank 2.
TEST(Hierarchical, ComparesRanksWithoutCounterpartOnOtherHosts) {
  const std::vector<std::pair<std::string, std::function<void(at::Tensor&, const Group&)>>> collectives = {
      {"all_reduce", [](at::Tensor& tensor, const Group& world) { all_reduce(tensor, world); }},
      {"reduce_scatter", [](at::Tensor& tensor, const Group& world) { reduce_scatter(tensor, world); }},
      {"all_gather", [](at::Tensor& tensor, const Group& world) { all_gather(tensor, world); }}};
  for (const bool deterministic : {false, true}) {
    if (deterministic) setenv(kDeterministicVariable, "1", 1);
    for (const auto& [name, collective] : collectives) {
      for (const std::int64_t other : {1500, 6000}) {
        SCOPED_TRACE(str(name, " of ", other, deterministic ? ", deterministic" : ""));
        expect_on_all({0, 0, 1},
                      [&, &run = collective](Context& context) {
                        at::Tensor tensor = at::ones({context.rank() == 1 ? other : 3000});
                        run(tensor, context.world());
                      },
                      {"ranks disagree", "rank 1 on host 0", "rank 2 on host 1"});
      }
    }
    unsetenv(kDeterministicVariable);
  }
}

TEST(Hierarchical, ARankThatNeverComesIsNamed) {
  run_layout({0, 1, 1}, [&](Context& context) {
    if (context.rank() == 0) {
      // Waits until the other ranks have given up.
      context.world().store()->wait({"late/1", "late/2"});
      return;
    }
    context.world().backend()->setTimeout(std::chrono::seconds(3));
    at::Tensor tensor = at::ones({10});
    try {
      all_reduce(tensor, context.world());
      ADD_FAILURE();
    } catch (const CommunicationError& e) {
      EXPECT_NE(std::string(e.what()).find("rank 0 on host 0"), std::string::npos) << e.what();
      EXPECT_EQ(e.ranks(), std::vector<int>{0}) << e.what();
    }
    context.world().store()->set(str("late/", context.rank()), "");
  });
}

using Collective = std::function<void(const Group& world)>;

// Collectives that four ranks repeat until one of them is lost.
const std::vector<std::pair<std::string, Collective>> kRepeated = {
    {"all_reduce",
     [](const Group& world) {
       at::Tensor tensor = at::ones({40000});
       all_reduce(tensor, world);
     }},
    {"broadcast",
     [](const Group& world) {
       at::Tensor tensor = at::ones({40000});
       broadcast(tensor, world, 1);
     }},
    {"all_gather", [](const Group& world) { all_gather(at::ones({40000}), world); }},
    {"gather", [](const Group& world) { gather(at::ones({40000}), world, 0); }},
    {"all_to_all",
     [](const Group& world) {
       const std::vector<at::Tensor> inputs(4, at::ones({40000}));
       std::vector<at::Tensor> outputs;
       for (int rank = 0; rank < 4; ++rank) outputs.push_back(at::empty({40000}));
       all_to_all(outputs, inputs, world);
     }},
    {"send and recv", [](const Group& world) {
       // Rank 3 sends to all ranks, which have no other sign of its loss.
       at::Tensor message = at::ones({40000});
       if (world.rank() != 3) return recv(message, world, 3);
       for (int rank = 0; rank < 3; ++rank) send(message, world, rank);
     }}};

// Two hosts with two ranks each, as processes; the last one is killed.
TEST(Hierarchical, AKilledProcessIsNamedByAll) {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  tests::FaultRecord record;
  for (const auto& [name, repeated] : kRepeated) {
    const std::shared_ptr<Store> meeting = SharedStore::create();
    tests::FaultyJob job(name, 4, 3, SIGKILL);
    job.start<PeerLostError>([&, &repeat = repeated](int rank, const std::function<void()>& strike) {
      at::set_num_threads(1);
      InitOptions options;
      options.backend = "hierarchical(native, gloo)";
      options.rank = rank;
      options.world_size = 4;
      options.store = c10::make_intrusive<StoreForC10d>(meeting);
      options.host = str("host ", rank % 2);
      const Context context = init(options);
      for (int round = 0;; ++round) {
        if (round == 5 && rank == 3) strike();
        try {
          repeat(context.world());
        } catch (const std::exception&) {
          job.note_error();
          throw;
        }
      }
    });
    record.finish(job);
  }
  EXPECT_EQ(record.wrong(), std::vector<std::string>());
}

}  // namespace
}  // namespace rondo::hierarchical_failures_test
