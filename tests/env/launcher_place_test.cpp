#include "rondo/env/launcher_place.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/env/identity.h"
#include "tests/errors.h"

namespace rondo::env::launcher_place_test {
namespace {

using rondo::testing::expect_facts;
using rondo::testing::message_of;

// Environment of the second of two launchers under srun.
const EnvironmentMap kSrun = {{"SLURM_PROCID", "1"},
                              {"SLURM_LOCALID", "0"},
                              {"SLURM_NODEID", "1"},
                              {"SLURM_STEP_ID", "3"},
                              {"SLURM_STEP_NUM_TASKS", "2"},
                              {"SLURM_STEP_NUM_NODES", "2"},
                              {"SLURM_STEP_NODELIST", "n[1-2]"},
                              {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                              {"SLURM_JOB_ID", "7"}};

EnvironmentMap with(EnvironmentMap environment, const EnvironmentMap& more) {
  for (const auto& [variable, value] : more) environment[variable] = value;
  return environment;
}

TEST(LauncherPlace, IsToldBySrun) {
  const auto place = find_launcher_place(kSrun);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->num_nodes, 2);
  EXPECT_EQ(place->node_rank, 1);
  EXPECT_EQ(place->master_addr, "n1");
  EXPECT_EQ(place->run_id, "slurm-7.3");
  EXPECT_EQ(place->master_port, default_port("slurm-7.3"));
  // MASTER_ADDR and MASTER_PORT of a script are used; variables that describe processes are not.
  const auto told = find_launcher_place(with(
      kSrun, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1234"}, {"RANK", "5"}, {"PET_NNODES", "9"}}));
  EXPECT_EQ(told->master_addr, "10.0.0.1");
  EXPECT_EQ(told->master_port, 1234);
  EXPECT_EQ(told->node_rank, 1);
}

TEST(LauncherPlace, ComesFromMpirunAndTpuSlices) {
  const EnvironmentMap mpirun = {{"OMPI_COMM_WORLD_RANK", "2"},
                                 {"OMPI_COMM_WORLD_SIZE", "3"},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                 {"PMIX_NAMESPACE", "space"}};
  const auto place = find_launcher_place(mpirun);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->num_nodes, 3);
  EXPECT_EQ(place->node_rank, 2);
  EXPECT_EQ(place->master_addr, "");  // a flag may set it
  EXPECT_EQ(find_launcher_place(with(mpirun, {{"SLURM_JOB_NODELIST", "n[4-6]"}}))->master_addr, "n4");
  const auto slice = find_launcher_place(
      {{"TPU_WORKER_ID", "1"}, {"TPU_WORKER_HOSTNAMES", "t0,t1"}, {"TPU_TOPOLOGY", "2x2"}});
  ASSERT_TRUE(slice);
  EXPECT_EQ(slice->node_rank, 1);
  EXPECT_EQ(slice->master_addr, "t0");
}

TEST(LauncherPlace, IsEmptyForALauncherThatIsAlone) {
  EXPECT_FALSE(find_launcher_place({}));
  EXPECT_FALSE(find_launcher_place({{"RANK", "1"}, {"WORLD_SIZE", "2"}}));
  EXPECT_FALSE(find_launcher_place({{"JOB_COMPLETION_INDEX", "1"}}));
  const EnvironmentMap one_task = {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_NUM_NODES", "1"},
                                   {"SLURM_STEP_NODELIST", "n1"}, {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                   {"SLURM_PROCID", "0"},         {"SLURM_NODEID", "0"}};
  EXPECT_FALSE(find_launcher_place(with(kSrun, one_task)));
  // A batch script, and a worker of another launcher.
  EXPECT_FALSE(find_launcher_place({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}}));
  EXPECT_FALSE(
      find_launcher_place(with(kSrun, {{"RONDO_LAUNCHER", "1"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}})));
}

TEST(LauncherPlace, RefusesSeveralLaunchersOfAHost) {
  const EnvironmentMap two_here = {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}};
  expect_facts(message_of<UsageError>([&] { find_launcher_place(with(kSrun, two_here)); }),
               {"SLURM_STEP_TASKS_PER_NODE=2", "SLURM_STEP_NUM_TASKS=4", "--ntasks-per-node=1"});
  // Another host has two launchers.
  const EnvironmentMap two_there = {
      {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_STEP_TASKS_PER_NODE", "2,1"}, {"SLURM_PROCID", "2"}};
  EXPECT_THROW(find_launcher_place(with(kSrun, two_there)), UsageError);
  EXPECT_THROW(find_launcher_place({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), UsageError);
}

TEST(LauncherPlace, IsTheIndexInKubernetes) {
  EXPECT_EQ(kubernetes_node_rank({{"JOB_COMPLETION_INDEX", "3"}}), 3);
  EXPECT_FALSE(kubernetes_node_rank({}));
}

}  // namespace
}  // namespace rondo::env::launcher_place_test
