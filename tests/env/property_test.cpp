// Random jobs, described by random sources that agree or contradict each other.
#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/env/identity.h"
#include "rondo/env/sources/slurm.h"

namespace rondo::env::property_test {
namespace {

// A process of a job with equal hosts and ranks in blocks.
struct Truth {
  int nodes, per_node, node, local;
  int world() const { return nodes * per_node; }
  int rank() const { return node * per_node + local; }
};

Truth random_truth(RandomStream& random) {
  Truth truth{};
  truth.nodes = 1 + static_cast<int>(random.below(6));
  truth.per_node = 1 + static_cast<int>(random.below(6));
  truth.node = static_cast<int>(random.below(static_cast<std::uint64_t>(truth.nodes)));
  truth.local = static_cast<int>(random.below(static_cast<std::uint64_t>(truth.per_node)));
  return truth;
}

std::vector<std::pair<std::string, int>> statements(const Truth& t) {
  std::vector<std::pair<std::string, int>> all = {
      {"RANK", t.rank()},
      {"WORLD_SIZE", t.world()},
      {"LOCAL_RANK", t.local},
      {"LOCAL_WORLD_SIZE", t.per_node},
      {"GROUP_RANK", t.node},
      {"GROUP_WORLD_SIZE", t.nodes},
      {"OMPI_COMM_WORLD_RANK", t.rank()},
      {"OMPI_COMM_WORLD_SIZE", t.world()},
      {"OMPI_COMM_WORLD_LOCAL_RANK", t.local},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", t.per_node},
      {"PMI_RANK", t.rank()},
      {"PMI_SIZE", t.world()},
      {"MPI_LOCALRANKID", t.local},
      {"PMIX_RANK", t.rank()},
      {"PET_NNODES", t.nodes},
      {"PET_NPROC_PER_NODE", t.per_node},
      {"PET_NODE_RANK", t.node},
      {"SLURM_PROCID", t.rank()},
      {"SLURM_NTASKS", t.world()},
      {"SLURM_LOCALID", t.local},
      {"SLURM_NODEID", t.node},
      {"SLURM_NNODES", t.nodes},
  };
  if (t.per_node == 1) all.emplace_back("JOB_COMPLETION_INDEX", t.node);
  return all;
}

EnvironmentMap random_subset(const Truth& truth, RandomStream& random) {
  EnvironmentMap environment = {{"MASTER_ADDR", "somewhere"}, {"SLURM_STEP_ID", "0"}};
  for (const auto& [variable, value] : statements(truth)) {
    if (random.below(2) == 0) environment[variable] = std::to_string(value);
  }
  if (random.below(2) == 0 && environment.contains("SLURM_NTASKS")) {
    environment["SLURM_TASKS_PER_NODE"] = str(truth.per_node, "(x", truth.nodes, ")");
  }
  return environment;
}

TEST(DiscoverProperty, ConsistentSourcesAgreeWhateverIsLeftOut) {
  RandomStream random(2024);
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    const Truth truth = random_truth(random);
    const EnvironmentMap environment = random_subset(truth, random);
    Identity self;
    try {
      self = discover(environment);
    } catch (const UsageError& e) {
      // The subset may omit a required value; the error must then say so.
      EXPECT_NE(std::string(e.what()).find("missing"), std::string::npos) << e.what();
      continue;
    }
    if (self.launcher == "none") continue;
    ++found;
    EXPECT_EQ(self.rank, truth.rank());
    EXPECT_EQ(self.world_size, truth.world());
    EXPECT_EQ(self.local_rank.value_or(truth.local), truth.local);
    EXPECT_EQ(self.local_world_size.value_or(truth.per_node), truth.per_node);
    EXPECT_EQ(self.node_rank.value_or(truth.node), truth.node);
    EXPECT_EQ(self.num_nodes.value_or(truth.nodes), truth.nodes);
  }
  EXPECT_GT(found, 2000);
}

TEST(DiscoverProperty, ChangedStatementIsANamedError) {
  // Pairs of variables with the same meaning.
  const std::vector<std::pair<std::string, std::string>> pairs = {{"RANK", "SLURM_PROCID"},
                                                                  {"RANK", "OMPI_COMM_WORLD_RANK"},
                                                                  {"OMPI_COMM_WORLD_RANK", "PMI_RANK"},
                                                                  {"WORLD_SIZE", "SLURM_NTASKS"},
                                                                  {"WORLD_SIZE", "PMI_SIZE"},
                                                                  {"LOCAL_RANK", "SLURM_LOCALID"},
                                                                  {"LOCAL_RANK", "MPI_LOCALRANKID"},
                                                                  {"GROUP_RANK", "SLURM_NODEID"},
                                                                  {"PET_NNODES", "SLURM_NNODES"},
                                                                  {"PET_NODE_RANK", "GROUP_RANK"},
                                                                  {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}};
  RandomStream random(7);
  for (int round = 0; round < 2000; ++round) {
    const Truth truth = random_truth(random);
    const auto& [one, other] = pairs[random.below(pairs.size())];
    EnvironmentMap environment = {
        {"MASTER_ADDR", "somewhere"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", std::to_string(truth.rank())}};
    for (const auto& [variable, value] : statements(truth)) {
      if (variable == one || variable == other) environment[variable] = std::to_string(value);
    }
    const std::string wrong =
        std::to_string(std::stoi(environment[one]) + 1 + static_cast<int>(random.below(5)));
    environment[one] = wrong;
    try {
      discover(environment);
      ADD_FAILURE() << one << "=" << wrong << " against " << other << "=" << environment[other];
    } catch (const UsageError& e) {
      const std::string message = e.what();
      EXPECT_NE(message.find(one + "=" + wrong), std::string::npos) << message;
      EXPECT_NE(message.find(other + "=" + environment[other]), std::string::npos) << message;
    }
    // Same inside a worker of rondo run: RANK and the other variables of the launcher win.
    if (one == "RANK" || one == "WORLD_SIZE" || one == "LOCAL_RANK" || one == "GROUP_RANK") {
      for (const auto& [variable, value] : statements(truth)) {
        if (variable == "RANK" || variable == "WORLD_SIZE" || variable == "LOCAL_RANK") {
          environment[variable] = std::to_string(value);
        }
      }
      environment[other] = wrong;
      environment.erase("GROUP_RANK");
      environment["RONDO_LAUNCHER"] = "1";
      EXPECT_EQ(discover(environment).rank, truth.rank());
    }
  }
}

TEST(DiscoverProperty, AnyTextIsParsedOrAUsageError) {
  constexpr std::string_view alphabet = "0123456789-[],()x: \"{}abn";
  const std::vector<std::string> variables = {
      "RANK",         "WORLD_SIZE", "SLURM_PROCID", "SLURM_TASKS_PER_NODE", "SLURM_JOB_NODELIST",
      "SLURM_NODEID", "TF_CONFIG",  "PET_NNODES",   "PET_NPROC_PER_NODE",   "JOB_COMPLETION_INDEX"};
  RandomStream random(5);
  for (int round = 0; round < 5000; ++round) {
    EnvironmentMap environment = {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}};
    for (int i = 0; i < 3; ++i) {
      std::string text;
      const std::uint64_t length = random.below(8);
      for (std::uint64_t c = 0; c < length; ++c) text += alphabet[random.below(alphabet.size())];
      environment[variables[random.below(variables.size())]] = text;
    }
    try {
      const Identity self = discover(environment);
      EXPECT_LT(self.rank, self.world_size);
    } catch (const UsageError&) {
    }
  }
}

TEST(NodeListProperty, CompressedListsExpandToThemselves) {
  RandomStream random(11);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> hosts;
    const std::uint64_t groups = 1 + random.below(4);
    for (std::uint64_t group = 0; group < groups; ++group) {
      const std::string prefix =
          std::vector<std::string>{"gnode", "n", "rack2-node", "a.b-", "login"}[random.below(5)];
      const std::uint64_t width = random.below(4);
      std::uint64_t number = random.below(120);
      const std::uint64_t count = 1 + random.below(6);
      for (std::uint64_t i = 0; i < count; ++i) {
        std::string digits = std::to_string(number);
        while (digits.size() < width) digits.insert(digits.begin(), '0');
        hosts.push_back(prefix + digits);
        number += 1 + (random.below(3) == 0 ? random.below(9) : 0);
      }
      if (random.below(3) == 0) hosts.push_back("head");
    }
    const std::string list = compress_node_list(hosts);
    EXPECT_EQ(expand_node_list(list, "list"), hosts) << list;
  }
}

}  // namespace
}  // namespace rondo::env::property_test
