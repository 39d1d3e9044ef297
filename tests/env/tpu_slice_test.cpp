#include "rondo/env/sources/tpu_slice.h"

#include <gtest/gtest.h>

#include "rondo/env/identity.h"
#include "tests/errors.h"

namespace rondo::env::tpu_slice_test {
namespace {

using rondo::testing::expect_facts;
using rondo::testing::message_of;

const EnvironmentMap kSlice = {{"TPU_WORKER_ID", "2"},
                               {"TPU_WORKER_HOSTNAMES", "t0, t1,t2,t3"},
                               {"TPU_TOPOLOGY", "4x4"},
                               {"TPU_ACCELERATOR_TYPE", "v5litepod-16"}};

EnvironmentMap with(EnvironmentMap environment, const std::string& variable, const std::string& value) {
  environment[variable] = value;
  return environment;
}

TEST(TpuSlice, SaysWhoThisHostIs) {
  const Identity self = discover(kSlice);
  EXPECT_EQ(self.rank, 2);
  EXPECT_EQ(self.world_size, 4);
  EXPECT_EQ(self.node_rank, 2);
  EXPECT_EQ(self.num_nodes, 4);
  EXPECT_EQ(self.local_rank, 0);
  EXPECT_EQ(self.master_addr, "t0");
  EXPECT_EQ(self.launcher, "tpu_slice");
  EXPECT_EQ(self.origin(Field::rank), "TPU_WORKER_ID");
  EXPECT_EQ(read_tpu_slice(kSlice)->topology, (std::vector<int>{4, 4}));
  EXPECT_FALSE(read_tpu_slice({{"PATH", "/bin"}}));
}

TEST(TpuSlice, OfOneHostIsAWorldOfOne) {
  const Identity self = discover({{"TPU_WORKER_ID", "0"},
                                  {"TPU_WORKER_HOSTNAMES", "localhost"},
                                  {"TPU_TOPOLOGY", "2x2"},
                                  {"TPU_ACCELERATOR_TYPE", "v4-8"}});
  EXPECT_EQ(self.world_size, 1);
  EXPECT_EQ(self.master_addr, "127.0.0.1");
}

TEST(TpuSlice, SeveralProcessesOfAHostAreALaunchers) {
  const Identity self = discover(with(with(kSlice, "LOCAL_RANK", "1"), "LOCAL_WORLD_SIZE", "4"));
  EXPECT_EQ(self.rank, 9);
  EXPECT_EQ(self.world_size, 16);
}

TEST(TpuSlice, ContradictionsNameBothSides) {
  const auto refused = [](const EnvironmentMap& environment, const std::vector<const char*>& facts) {
    const std::string message = message_of<UsageError>([&] { discover(environment); });
    for (const char* fact : facts)
      EXPECT_NE(message.find(fact), std::string::npos) << fact << ": " << message;
  };
  refused(with(kSlice, "TPU_WORKER_ID", "4"), {"TPU_WORKER_ID=4", "TPU_WORKER_HOSTNAMES", "t3"});
  refused(with(kSlice, "TPU_WORKER_ID", "two"), {"TPU_WORKER_ID", "two"});
  refused(with(kSlice, "TPU_TOPOLOGY", "2x4"), {"v5litepod-16", "16", "TPU_TOPOLOGY=2x4", "8"});
  refused(with(kSlice, "TPU_TOPOLOGY", "4y4"), {"TPU_TOPOLOGY", "4y4"});
  refused(with(kSlice, "TPU_ACCELERATOR_TYPE", "v4-16"), {"v4-16", "8", "4x4", "16"});
  refused(with(kSlice, "TPU_WORKER_HOSTNAMES", "t0,t1,t2"), {"4x4", "16", "t0,t1,t2", "3"});
  refused(with(kSlice, "TPU_WORKER_HOSTNAMES", "t0,t0"), {"t0", "twice"});
  refused(with(kSlice, "RANK", "1"), {"RANK=1", "TPU_WORKER_ID=2"});
  refused(with(kSlice, "JOB_COMPLETION_INDEX", "3"), {"JOB_COMPLETION_INDEX=3", "TPU_WORKER_ID=2"});
  EnvironmentMap nameless = kSlice;
  nameless.erase("TPU_WORKER_ID");
  refused(nameless, {"TPU_WORKER_HOSTNAMES", "4", "TPU_WORKER_ID"});
  // Unknown types are not checked.
  EXPECT_EQ(discover(with(kSlice, "TPU_ACCELERATOR_TYPE", "v99-7")).rank, 2);
}

}  // namespace
}  // namespace rondo::env::tpu_slice_test
