#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/env/identity.h"
#include "rondo/env/roles.h"
#include "rondo/env/sources/slurm.h"

namespace rondo::env::discover_test {
namespace {

std::string error_of(const EnvironmentMap& environment, const Overrides& overrides = {}) {
  try {
    discover(environment, overrides);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

void expect_mentions(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

TEST(Discover, NoLauncherIsAWorldOfOne) {
  const Identity self = discover({{"PATH", "/bin"}, {"MASTER_ADDR", "somewhere"}});
  EXPECT_EQ(self.rank, 0);
  EXPECT_EQ(self.world_size, 1);
  EXPECT_EQ(self.local_rank, 0);
  EXPECT_EQ(self.local_world_size, 1);
  EXPECT_EQ(self.node_rank, 0);
  EXPECT_EQ(self.num_nodes, 1);
  EXPECT_EQ(self.launcher, "none");
  EXPECT_EQ(self.master_addr, "somewhere");
}

TEST(Discover, ReadsTorchrunsVariables) {
  const Identity self = discover({{"RANK", "3"},
                                  {"WORLD_SIZE", "4"},
                                  {"LOCAL_RANK", "1"},
                                  {"LOCAL_WORLD_SIZE", "2"},
                                  {"GROUP_RANK", "1"},
                                  {"GROUP_WORLD_SIZE", "2"},
                                  {"ROLE_NAME", "trainer"},
                                  {"ROLE_RANK", "3"},
                                  {"ROLE_WORLD_SIZE", "4"},
                                  {"MASTER_ADDR", "10.0.0.1"},
                                  {"MASTER_PORT", "1234"},
                                  {"TORCHELASTIC_RUN_ID", "job"},
                                  {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(self.rank, 3);
  EXPECT_EQ(self.world_size, 4);
  EXPECT_EQ(self.local_rank, 1);
  EXPECT_EQ(self.local_world_size, 2);
  EXPECT_EQ(self.node_rank, 1);
  EXPECT_EQ(self.num_nodes, 2);
  EXPECT_EQ(self.role, "trainer");
  EXPECT_EQ(self.master_addr, "10.0.0.1");
  EXPECT_EQ(self.master_port, 1234);
  EXPECT_EQ(self.run_id, "job");
  EXPECT_EQ(self.restart_count, 2);
  EXPECT_EQ(self.launcher, "torchrun");
  EXPECT_EQ(self.origin(Field::rank), "RANK");
}

TEST(Discover, SlurmFillsWhatAScriptLeftOut) {
  // The script exports WORLD_SIZE and MASTER_ADDR and calls srun.
  const Identity self = discover({{"WORLD_SIZE", "7"},
                                  {"MASTER_ADDR", "10.1.1.1"},
                                  {"SLURM_PROCID", "6"},
                                  {"SLURM_NTASKS", "7"},
                                  {"SLURM_LOCALID", "0"},
                                  {"SLURM_NODEID", "3"},
                                  {"SLURM_NNODES", "4"},
                                  {"SLURM_TASKS_PER_NODE", "2(x3),1"},
                                  {"SLURM_JOB_NODELIST", "gnode[10,20,25-26]"},
                                  {"SLURM_JOB_ID", "99"},
                                  {"SLURM_STEP_ID", "0"},
                                  {"SLURM_RESTART_COUNT", "1"}});
  EXPECT_EQ(self.rank, 6);
  EXPECT_EQ(self.world_size, 7);
  EXPECT_EQ(self.local_rank, 0);
  EXPECT_EQ(self.local_world_size, 1);
  EXPECT_EQ(self.node_rank, 3);
  EXPECT_EQ(self.num_nodes, 4);
  EXPECT_EQ(self.master_addr, "10.1.1.1");
  EXPECT_EQ(self.restart_count, 1);
  EXPECT_EQ(self.origin(Field::world_size), "WORLD_SIZE");
  EXPECT_EQ(self.origin(Field::rank), "SLURM_PROCID");
  EXPECT_EQ(self.launcher, "slurm");
  EXPECT_EQ(self.master_port, default_port("slurm-99.0"));
}

TEST(Discover, SlurmsFirstHostIsTheMaster) {
  const EnvironmentMap step = {{"SLURM_PROCID", "0"},
                               {"SLURM_STEP_ID", "0"},
                               {"SLURM_NTASKS", "2"},
                               {"SLURM_STEP_NODELIST", "n[01-02]"},
                               {"SLURM_JOB_NODELIST", "m[1-4]"}};
  EXPECT_EQ(discover(step).master_addr, "n01");
}

TEST(Discover, AnAllocationWithoutATaskIsOneProcess) {
  const Identity self = discover({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}, {"SLURM_NNODES", "4"}});
  EXPECT_EQ(self.world_size, 1);
}

TEST(Discover, ABatchScriptIsOneProcess) {
  EnvironmentMap script = {
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"},        {"SLURM_LOCALID", "0"},
      {"SLURM_NODEID", "0"}, {"SLURM_NNODES", "2"},        {"SLURM_TASKS_PER_NODE", "3,1"},
      {"SLURM_JOB_ID", "7"}, {"SLURM_RESTART_COUNT", "1"}, {"SLURM_JOB_NODELIST", "n[1-2]"}};
  EXPECT_EQ(discover(script).world_size, 1);
  EXPECT_EQ(tasks_without_srun(script), 4);
  EXPECT_TRUE(is_requeued_slurm_job(script));
  // Same for an interactive shell, whose step has one of Slurm's own numbers.
  script["SLURM_STEP_ID"] = "4294967290";
  EXPECT_EQ(discover(script).world_size, 1);
  script["SLURM_STEP_ID"] = "4294967291";
  EXPECT_EQ(discover(script).world_size, 1);
  script["SLURM_STEP_ID"] = "0";
  EXPECT_EQ(discover(script).world_size, 4);
  EXPECT_FALSE(tasks_without_srun(script));
}

TEST(Discover, BatchScriptRanksUseTheFirstHost) {
  const Identity self = discover({{"RANK", "1"},
                                  {"WORLD_SIZE", "2"},
                                  {"SLURM_PROCID", "0"},
                                  {"SLURM_NTASKS", "4"},
                                  {"SLURM_JOB_ID", "7"},
                                  {"SLURM_JOB_NODELIST", "n[1-2]"}});
  EXPECT_EQ(self.rank, 1);
  EXPECT_EQ(self.world_size, 2);
  EXPECT_EQ(self.master_addr, "n1");
}

TEST(Discover, SlurmsListsThatContradictItsCountsAreNamed) {
  const EnvironmentMap task = {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}};
  const auto with = [&](const EnvironmentMap& more) {
    EnvironmentMap all = task;
    all.insert(more.begin(), more.end());
    return error_of(all);
  };
  for (const char* list : {"n1", "n[1-3]"}) {
    expect_mentions(with({{"SLURM_NNODES", "2"}, {"SLURM_NODELIST", list}}),
                    {"SLURM_NNODES=2", std::string("SLURM_NODELIST=") + list, "hosts"});
    expect_mentions(with({{"SLURM_NNODES", "2"}, {"SLURM_JOB_NODELIST", list}}),
                    {"SLURM_NNODES=2", std::string("SLURM_JOB_NODELIST=") + list, "hosts"});
    expect_mentions(with({{"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_NODELIST", list}}),
                    {"SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST"});
  }
  expect_mentions(with({{"SLURM_TASKS_PER_NODE", "4"}}),
                  {"SLURM_NTASKS=2", "SLURM_TASKS_PER_NODE=4", "4 tasks"});
  expect_mentions(with({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"}}),
                  {"SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_TASKS_PER_NODE"});
  expect_mentions(with({{"SLURM_NNODES", "2"}, {"SLURM_TASKS_PER_NODE", "2"}}),
                  {"SLURM_NNODES=2", "SLURM_TASKS_PER_NODE=2"});
  // A step on a part of the job: the step's count, and the job's list.
  EXPECT_EQ(with({{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_JOB_NODELIST", "n[1-2]"}}), "no error");
}

TEST(Discover, ReadsOpenMpi) {
  // Open MPI's "node rank" numbers the processes of a node, not the nodes.
  const Identity self = discover({{"OMPI_COMM_WORLD_RANK", "1"},
                                  {"OMPI_COMM_WORLD_SIZE", "2"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                  {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                                  {"PMIX_RANK", "1"},
                                  {"PMIX_NAMESPACE", "prterun-host-12@1"}});
  EXPECT_EQ(self.rank, 1);
  EXPECT_EQ(self.world_size, 2);
  EXPECT_EQ(self.local_rank, 1);
  EXPECT_EQ(self.node_rank, 0);
  EXPECT_EQ(self.num_nodes, 1);
  EXPECT_EQ(self.master_addr, "127.0.0.1");
  EXPECT_EQ(self.master_port, default_port("prterun-host-12@1"));
  EXPECT_EQ(self.launcher, "open_mpi");
}

TEST(Discover, MpirunInsideASlurmBatchJobWins) {
  // The SLURM_ variables describe mpirun's daemon: one per host.
  const Identity self = discover({{"OMPI_COMM_WORLD_RANK", "5"},
                                  {"OMPI_COMM_WORLD_SIZE", "8"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                  {"PMIX_NAMESPACE", "1234"},
                                  {"SLURM_PROCID", "0"},
                                  {"SLURM_STEP_ID", "0"},
                                  {"SLURM_NTASKS", "1"},
                                  {"SLURM_LOCALID", "0"},
                                  {"SLURM_STEP_NODELIST", "n2"},
                                  {"SLURM_JOB_NODELIST", "n[1-2]"}});
  EXPECT_EQ(self.rank, 5);
  EXPECT_EQ(self.world_size, 8);
  EXPECT_EQ(self.master_addr, "n1");
}

TEST(Discover, ReadsPmi) {
  const Identity self =
      discover({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}});
  EXPECT_EQ(self.rank, 2);
  EXPECT_EQ(self.world_size, 3);
  EXPECT_EQ(self.local_rank, 2);
  EXPECT_EQ(discover({{"PMIX_RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}).rank, 1);
}

TEST(Discover, ReadsKubernetesIndexedJobs) {
  const Identity self =
      discover({{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "pod-0.svc"}});
  EXPECT_EQ(self.rank, 2);
  EXPECT_EQ(self.node_rank, 2);
  EXPECT_EQ(self.launcher, "kubernetes");
  // An Indexed Job alone does not provide the world size; the error names the index once.
  const std::string alone = error_of({{"JOB_COMPLETION_INDEX", "0"}});
  expect_mentions(alone, {"JOB_COMPLETION_INDEX=0", "WORLD_SIZE", "completions"});
  EXPECT_EQ(alone.find("JOB_COMPLETION_INDEX"), alone.rfind("JOB_COMPLETION_INDEX")) << alone;
  // With several processes per pod, the index is the node's number instead of the rank.
  const Identity second = discover({{"JOB_COMPLETION_INDEX", "1"},
                                    {"RANK", "3"},
                                    {"WORLD_SIZE", "4"},
                                    {"LOCAL_RANK", "1"},
                                    {"LOCAL_WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "pod-0.svc"}});
  EXPECT_EQ(second.rank, 3);
  EXPECT_EQ(second.node_rank, 1);
}

TEST(Discover, ReadsKubeflowsPetVariables) {
  const Identity self = discover({{"PET_NNODES", "3"},
                                  {"PET_NPROC_PER_NODE", "1"},
                                  {"PET_NODE_RANK", "2"},
                                  {"PET_MASTER_ADDR", "pod-0"},
                                  {"PET_MASTER_PORT", "29400"}});
  EXPECT_EQ(self.rank, 2);
  EXPECT_EQ(self.world_size, 3);
  EXPECT_EQ(self.local_rank, 0);
  EXPECT_EQ(self.num_nodes, 3);
  EXPECT_EQ(self.master_addr, "pod-0");
  EXPECT_EQ(self.master_port, 29400);
  // A range or a word does not determine the number of processes.
  EXPECT_EQ(discover({{"PET_NNODES", "1:4"}, {"PET_NPROC_PER_NODE", "auto"}}).world_size, 1);
  EXPECT_EQ(discover({{"PET_NNODES", "1"}}).world_size, 1);
}

TEST(Discover, ReadsTfConfig) {
  const std::string cluster =
      R"({"cluster":{"chief":["a:2222"],"worker":["b:2222","a:2223"],"ps":["c:2222"],"evaluator":["d:1"]},)";
  const Identity self = discover({{"TF_CONFIG", cluster + R"("task":{"type":"worker","index":1}})"}});
  EXPECT_EQ(self.rank, 2);
  EXPECT_EQ(self.world_size, 4);
  EXPECT_EQ(self.role, "worker");
  EXPECT_EQ(self.role_rank, 1);
  EXPECT_EQ(self.role_world_size, 2);
  EXPECT_EQ(self.local_rank, 1);
  EXPECT_EQ(self.local_world_size, 2);
  EXPECT_EQ(self.num_nodes, 3);
  EXPECT_EQ(self.node_rank, 0);
  EXPECT_EQ(self.master_addr, "a");
  EXPECT_EQ(self.master_port, 2222);
  const Identity evaluator = discover({{"TF_CONFIG", cluster + R"("task":{"type":"evaluator","index":0}})"}});
  EXPECT_EQ(evaluator.world_size, 1);
  EXPECT_EQ(evaluator.role, "evaluator");
}

TEST(Discover, TfConfigIndexMayBeAString) {
  const auto with_index = [](const std::string& index) {
    return EnvironmentMap{
        {"TF_CONFIG",
         R"({"cluster":{"worker":["a:1","b:1"]},"task":{"type":"worker","index":)" + index + "}}"}};
  };
  EXPECT_EQ(discover(with_index(R"("1")")).rank, 1);
  for (const char* index : {R"("one")", R"("-1")", R"("")", "1.5", "true", R"("99999999999999999999")"})
    expect_mentions(error_of(with_index(index)), {"TF_CONFIG", "task.index"});
}

TEST(Discover, AddressesOfIpv6HaveNoBrackets) {
  const EnvironmentMap ranks = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  const auto with = [&](const std::string& variable, const std::string& value) {
    EnvironmentMap all = ranks;
    all[variable] = value;
    return discover(all).master_addr;
  };
  EXPECT_EQ(with("MASTER_ADDR", "[::1]"), "::1");
  EXPECT_EQ(with("MASTER_ADDR", "fe80::1"), "fe80::1");
  EnvironmentMap both = ranks;
  both.insert({{"MASTER_ADDR", "::1"}, {"PET_MASTER_ADDR", "[::1]"}});
  EXPECT_EQ(discover(both).master_addr, "::1");
  const std::string config =
      R"({"cluster":{"worker":["[::1]:2222","[::1]:2223"]},"task":{"type":"worker","index":1}})";
  const Identity worker = discover({{"TF_CONFIG", config}});
  EXPECT_EQ(worker.master_addr, "::1");
  EXPECT_EQ(worker.master_port, 2222);
  EXPECT_EQ(worker.local_world_size, 2);
}

TEST(Discover, RefusesUnsupportedTfConfigRoles) {
  const auto tf_config = [](const std::string& cluster, const std::string& type, int index) {
    return EnvironmentMap{{"TF_CONFIG", R"({"cluster":{)" + cluster + R"(},"task":{"type":")" + type +
                                            R"(","index":)" + std::to_string(index) + "}}"}};
  };
  const auto error = [](const EnvironmentMap& environment) -> std::string {
    try {
      require_served_role(discover(environment));
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  const std::string workers = R"("chief":["a:1"],"worker":["b:1","c:1"])";
  const std::string servers = workers + R"(,"ps":["d:1","e:1"])";
  expect_mentions(error(tf_config(servers, "ps", 1)), {"TF_CONFIG", "ps", "index 1"});
  expect_mentions(error(tf_config(servers, "worker", 1)),
                  {"TF_CONFIG", "2 tasks", "ps", "worker", "index 1"});
  expect_mentions(error(tf_config(workers + R"(,"evaluator":["f:1"])", "evaluator", 0)),
                  {"TF_CONFIG", "evaluator"});
  // Roles unknown to rondo, of this process or of others: "workers" is a typo for "worker".
  for (const std::string role : {"workers", "PS", "gardener", ""}) {
    const std::string cluster = workers + ",\"" + role + R"(":["f:1"])";
    for (const std::string& own : {role, std::string("chief"), std::string("worker")}) {
      expect_mentions(error(tf_config(cluster, own, 0)),
                      {"TF_CONFIG", role, "chief", "master", "worker", "ps", "evaluator"});
    }
    expect_mentions(error(tf_config(workers, role, 0)), {"TF_CONFIG", "task.type", role, "chief"});
  }
  // Replicas: the chief is rank 0, workers follow, and an evaluator is not among them.
  const EnvironmentMap worker = tf_config(workers + R"(,"evaluator":["f:1"])", "worker", 1);
  EXPECT_EQ(error(worker), "");
  EXPECT_EQ(discover(worker).rank, 2);
  EXPECT_EQ(discover(worker).world_size, 3);
  EXPECT_EQ(error(tf_config(workers, "chief", 0)), "");
  EXPECT_EQ(discover(tf_config(workers, "chief", 0)).rank, 0);
  EXPECT_EQ(error(tf_config(R"("master":["a:1"],"worker":["b:1"])", "master", 0)), "");
  // torchrun's role is chosen by the user. If a launcher starts the ranks, TF_CONFIG describes the launcher.
  const EnvironmentMap torchrun = {
      {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"ROLE_NAME", "ps"}, {"TORCHELASTIC_RUN_ID", "7"}};
  EXPECT_EQ(error(torchrun), "");
  EnvironmentMap both = tf_config(servers, "ps", 1);
  both.insert(torchrun.begin(), torchrun.end());
  EXPECT_EQ(error(both), "");
}

TEST(Discover, MalformedTfConfigIsNamed) {
  for (const char* text :
       {"{", "[]", R"({"cluster":1,"task":{"type":"worker","index":0}})", R"({"cluster":{},"task":{}})",
        R"({"cluster":{"worker":["a"]},"task":{"type":"worker","index":-1}})",
        R"({"cluster":{"worker":["a"]},"task":{"type":"worker","index":1}})",
        R"({"cluster":{"worker":[7]},"task":{"type":"worker","index":0}})",
        R"({"cluster":{"worker":["a:b"]},"task":{"type":"worker","index":0}})"}) {
    expect_mentions(error_of({{"TF_CONFIG", text}}), {"TF_CONFIG"});
  }
}

TEST(Discover, DisagreementNamesBothVariablesAndValues) {
  expect_mentions(error_of({{"RANK", "0"},
                            {"WORLD_SIZE", "2"},
                            {"SLURM_PROCID", "1"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_NTASKS", "2"}}),
                  {"RANK=0", "SLURM_PROCID=1"});
  expect_mentions(
      error_of({{"WORLD_SIZE", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}}),
      {"WORLD_SIZE=4", "SLURM_NTASKS=2"});
  expect_mentions(error_of({{"PET_MASTER_ADDR", "a"}, {"MASTER_ADDR", "b"}}),
                  {"PET_MASTER_ADDR=a", "MASTER_ADDR=b"});
  expect_mentions(error_of({{"OMPI_COMM_WORLD_RANK", "1"}, {"PMI_RANK", "0"}}),
                  {"OMPI_COMM_WORLD_RANK=1", "PMI_RANK=0"});
  expect_mentions(error_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"JOB_COMPLETION_INDEX", "0"}}),
                  {"RANK=1", "JOB_COMPLETION_INDEX=0"});
  Overrides overrides;
  overrides.rank = 1;
  expect_mentions(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, overrides),
                  {"InitOptions.rank=1", "RANK=0"});
  overrides.prefix = "--";
  expect_mentions(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, overrides), {"--rank=1", "RANK=0"});
}

TEST(Discover, TheLauncherWinsInsideASchedulersTask) {
  for (const char* mark : {"TORCHELASTIC_RUN_ID", "RONDO_LAUNCHER"}) {
    const Identity self = discover({{mark, "1"},
                                    {"RANK", "1"},
                                    {"WORLD_SIZE", "2"},
                                    {"LOCAL_RANK", "1"},
                                    {"LOCAL_WORLD_SIZE", "2"},
                                    {"MASTER_ADDR", "127.0.0.1"},
                                    {"SLURM_PROCID", "0"},
                                    {"SLURM_STEP_ID", "0"},
                                    {"SLURM_NTASKS", "1"},
                                    {"SLURM_LOCALID", "0"},
                                    {"JOB_COMPLETION_INDEX", "5"},
                                    {"PET_NNODES", "1"},
                                    {"PET_NPROC_PER_NODE", "1"},
                                    {"PET_NODE_RANK", "0"}});
    EXPECT_EQ(self.rank, 1);
    EXPECT_EQ(self.world_size, 2);
    EXPECT_EQ(self.num_nodes, 1);
  }
}

TEST(Discover, LeftoverVariableMakesNoRank) {
  for (const char* mark : {"TORCHELASTIC_RUN_ID", "RONDO_LAUNCHER"}) {
    EXPECT_FALSE(is_one_of_several({{mark, "1"}}));
    EXPECT_EQ(discover({{mark, "1"}}).world_size, 1);
    EXPECT_TRUE(is_one_of_several({{mark, "1"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  }
}

TEST(Discover, NamesWhatIsMissing) {
  expect_mentions(error_of({{"WORLD_SIZE", "4"}}), {"WORLD_SIZE=4", "RANK", "rondo run"});
  expect_mentions(error_of({{"RANK", "1"}}), {"RANK=1", "WORLD_SIZE"});
  expect_mentions(error_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), {"MASTER_ADDR", "WORLD_SIZE=2"});
  expect_mentions(error_of({{"JOB_COMPLETION_INDEX", "1"}}), {"JOB_COMPLETION_INDEX=1", "WORLD_SIZE"});
  expect_mentions(error_of({{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "4"}}),
                  {"PET_NPROC_PER_NODE=4", "RANK"});
}

TEST(Discover, RejectsMalformedAndOutOfRangeValues) {
  expect_mentions(error_of({{"RANK", "one"}, {"WORLD_SIZE", "2"}}), {"RANK", "one"});
  expect_mentions(error_of({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), {"RANK", "-1"});
  expect_mentions(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), {"RANK=2", "WORLD_SIZE=2"});
  expect_mentions(error_of({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), {"WORLD_SIZE=0"});
  expect_mentions(error_of({{"RANK", "99999999999"}}), {"RANK", "99999999999"});
  expect_mentions(error_of({{"MASTER_PORT", "65536"}}), {"MASTER_PORT=65536"});
  expect_mentions(
      error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}}),
      {"LOCAL_WORLD_SIZE=4", "WORLD_SIZE=2"});
  Overrides overrides;
  overrides.rank = -3;
  expect_mentions(error_of({}, overrides), {"InitOptions.rank=-3"});
}

TEST(Discover, EmptyVariablesCountAsUnset) {
  EXPECT_EQ(discover({{"RANK", ""}, {"WORLD_SIZE", ""}, {"TF_CONFIG", ""}}).world_size, 1);
}

TEST(Discover, InitMethodGivesTheMeetingPlace) {
  Overrides tcp;
  tcp.rank = 1;
  tcp.world_size = 2;
  tcp.init_method = "tcp://10.0.0.7:2345";
  const Identity self = discover({{"MASTER_ADDR", "elsewhere"}, {"MASTER_PORT", "1"}}, tcp);
  EXPECT_EQ(self.master_addr, "10.0.0.7");
  EXPECT_EQ(self.master_port, 2345);
  Overrides file;
  file.rank = 1;
  file.world_size = 2;
  file.init_method = "file:///tmp/meet";
  EXPECT_EQ(discover({}, file).master_addr, "");
}

TEST(Discover, ProcessEnvironmentNamesTheHost) { EXPECT_FALSE(discover_process({}).host.empty()); }

}  // namespace
}  // namespace rondo::env::discover_test
