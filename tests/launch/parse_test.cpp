#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "rondo/base/error.h"
#include "rondo/launch/command.h"
#include "rondo/launch/host_resources.h"
#include "rondo/launch/run_options.h"
#include "rondo/launch/worker_environment.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::launch::parse_test {
namespace {

using rondo::testing::expect_facts;
using rondo::testing::message_of;
using Words = std::vector<std::string>;

TEST(StreamsByRank, ReadsTorchrunsNotation) {
  EXPECT_EQ(StreamsByRank::parse("0", "-r").of(0), (Streams{false, false}));
  EXPECT_EQ(StreamsByRank::parse("1", "-r").of(7), (Streams{true, false}));
  EXPECT_EQ(StreamsByRank::parse("3", "-r").of(7), (Streams{true, true}));
  const StreamsByRank mixed = StreamsByRank::parse("0:1,1:2", "-r");
  EXPECT_EQ(mixed.of(0), (Streams{true, false}));
  EXPECT_EQ(mixed.of(1), (Streams{false, true}));
  EXPECT_EQ(mixed.of(2), (Streams{}));
  EXPECT_FALSE(StreamsByRank::parse("0:0", "-r").any());
  EXPECT_TRUE(mixed.any());
  for (const char* text : {"", "4", "-1", "33", "0:1,", "0:1,1", "x:1", "0:", ":1", "-1:1"}) {
    EXPECT_THROW(StreamsByRank::parse(text, "-r"), UsageError) << text;
  }
}

TEST(Ranks, MustExist) {
  EXPECT_EQ(parse_ranks("2,0", 3, "--wrap"), (std::set<int>{0, 2}));
  for (const char* text : {"3", "-1", "x", "0,,1"})
    EXPECT_THROW(parse_ranks(text, 3, "--wrap"), UsageError) << text;
}

TEST(Words, AreSplitAsAShellDoes) {
  EXPECT_EQ(split_words("gdb -batch -ex 'bt full' --args", "--wrap"),
            (Words{"gdb", "-batch", "-ex", "bt full", "--args"}));
  EXPECT_EQ(split_words(R"(a "b \"c\" d" e\ f '' 'g\h')", "--wrap"),
            (Words{"a", "b \"c\" d", "e f", "", "g\\h"}));
  for (const char* text : {"", "  ", "'a", "a \"b"})
    EXPECT_THROW(split_words(text, "--wrap"), UsageError) << text;
}

TEST(Command, PythonFilesGetPython) {
  const Words direct = make_command("sh", {"-c", "true"}, {});
  EXPECT_TRUE(direct[0].ends_with("/sh"));
  EXPECT_EQ(direct.size(), 3U);
  const Words module = make_command("pkg.train", {"-x"}, {.module = true});
  EXPECT_TRUE(module[0].ends_with("/python3"));
  EXPECT_EQ(Words(module.begin() + 1, module.end()), (Words{"-u", "-m", "pkg.train", "-x"}));
  EXPECT_THROW(make_command("/no/such/file.py", {}, {}), UsageError);
  EXPECT_THROW(find_program("/"), UsageError);
  EXPECT_THROW(find_program(""), UsageError);
}

TEST(CpuList, IsReadAsTheKernelWritesIt) {
  EXPECT_EQ(parse_cpu_list("0-2,5"), (std::vector<int>{0, 1, 2, 5}));
  EXPECT_TRUE(parse_cpu_list("").empty());
  EXPECT_THROW(parse_cpu_list("0-1-2"), Error);
  EXPECT_THROW(parse_cpu_list("x"), Error);
}

TEST(ProcessCount, IsANumberOrAWord) {
  EXPECT_EQ(process_count("3", "-n"), 3);
  EXPECT_EQ(process_count("cpu", "-n"), usable_processors());
  for (const char* text : {"", "0", "-1", "two", "1.5", "9999999999"})
    EXPECT_THROW(process_count(text, "-n"), UsageError) << text;
  ASSERT_EQ(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);
  EXPECT_EQ(process_count("auto", "-n"), usable_processors());
  expect_facts(message_of<UsageError>([] { process_count("gpu", "--nproc-per-node"); }),
               {"--nproc-per-node", "gpu", "CUDA_VISIBLE_DEVICES"});
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(CpuQuota, OfVersion2IsTheMinimumOfAncestors) {
  const TemporaryDirectory root;
  root.write("proc/self/cgroup", "0::/pod/container\n");
  EXPECT_FALSE(cpu_quota(root.path()));
  root.write("sys/fs/cgroup/pod/container/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpu_quota(root.path()), 4.0);
  root.write("sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(root.path()), 1.5);
  // A container sees its own group as the root.
  root.write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpu_quota(root.path()), 0.5);
  root.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  root.write("sys/fs/cgroup/pod/cpu.max", "max\n");
  root.write("sys/fs/cgroup/pod/container/cpu.max", "");
  EXPECT_FALSE(cpu_quota(root.path()));
}

TEST(CpuQuota, OfVersion1IsThatOfTheController) {
  const TemporaryDirectory root;
  root.write("proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n");
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_FALSE(cpu_quota(root.path()));
  root.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(cpu_quota(root.path()), 2.5);
  EXPECT_FALSE(cpu_quota(root / "nowhere"));
}

// Four cores with two threads each on two nodes.
const CpuLayout kTwoNodes = {{{0, 4}, {1, 5}, {2, 6}, {3, 7}}, {{0, 1, 4, 5}, {2, 3, 6, 7}}};
using Bound = std::vector<std::vector<int>>;

TEST(Binding, GivesWorkersNeighbouringCores) {
  EXPECT_EQ(bind_workers(kTwoNodes, Binding::core, 2), (Bound{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  EXPECT_EQ(bind_workers(kTwoNodes, Binding::core, 3), (Bound{{0, 4}, {1, 5}, {2, 6}}));
  EXPECT_EQ(bind_workers(kTwoNodes, Binding::core, 5).back(), (std::vector<int>{0, 4}));
}

TEST(Binding, GivesWorkersWholeNodes) {
  EXPECT_EQ(bind_workers(kTwoNodes, Binding::numa, 1), (Bound{{0, 1, 4, 5, 2, 3, 6, 7}}));
  EXPECT_EQ(bind_workers(kTwoNodes, Binding::numa, 2), (Bound{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  const Bound four = bind_workers(kTwoNodes, Binding::numa, 4);
  EXPECT_EQ(four[1], kTwoNodes.nodes[0]);
  EXPECT_EQ(four[2], kTwoNodes.nodes[1]);
}

TEST(Binding, NoneLeavesWorkersFree) {
  for (const auto& cpus : bind_workers(kTwoNodes, Binding::none, 2)) EXPECT_TRUE(cpus.empty());
}

TEST(CpuLayout, OfThisMachineNamesEveryCpuOnce) {
  const CpuLayout layout = cpu_layout();
  std::vector<int> by_core;
  std::vector<int> by_node;
  for (const auto& core : layout.cores) by_core.insert(by_core.end(), core.begin(), core.end());
  for (const auto& node : layout.nodes) by_node.insert(by_node.end(), node.begin(), node.end());
  std::sort(by_core.begin(), by_core.end());
  std::sort(by_node.begin(), by_node.end());
  EXPECT_FALSE(by_core.empty());
  EXPECT_EQ(by_core, by_node);
}

TEST(WorkerEnvironment, ReplacesWhatAnOuterLauncherSet) {
  WorkerPlace place;
  place.rank = 1;
  place.world_size = 4;
  place.local_world_size = 2;
  place.node_rank = 1;
  place.num_nodes = 2;
  place.interface = "eth7";
  const env::EnvironmentMap made = worker_environment(
      {{"RANK", "9"}, {"RONDO_STORE_FD", "77"}, {"TORCHELASTIC_ERROR_FILE", "/outer"}, {"KEPT", "yes"}},
      place);
  EXPECT_EQ(made.at("RANK"), "1");
  EXPECT_EQ(made.at("WORLD_SIZE"), "4");
  EXPECT_EQ(made.at("LOCAL_RANK"), "0");
  EXPECT_EQ(made.at("LOCAL_WORLD_SIZE"), "2");
  EXPECT_EQ(made.at("GROUP_RANK"), "1");
  EXPECT_EQ(made.at("GROUP_WORLD_SIZE"), "2");
  EXPECT_EQ(made.at("GLOO_SOCKET_IFNAME"), "eth7");
  EXPECT_EQ(made.at("NCCL_SOCKET_IFNAME"), "eth7");
  EXPECT_EQ(made.at("KEPT"), "yes");
  EXPECT_EQ(made.at("OMP_NUM_THREADS"), "1");
  EXPECT_FALSE(made.contains("RONDO_STORE_FD"));
  EXPECT_FALSE(made.contains("TORCHELASTIC_ERROR_FILE"));
}

TEST(Devices, HiddenGpusDoNotCount) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EQ(gpu_count(), 0);
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  EXPECT_EQ(gpu_count(), 0);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace rondo::launch::parse_test
