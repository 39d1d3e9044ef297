#include "rondo/env/cluster.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "tests/errors.h"

namespace rondo::env_cluster_test {
namespace {

using env::Cluster;
using env::EnvironmentMap;
using env::has_evaluator;
using env::is_evaluator;
using env::read_cluster;
using testing::expect_facts;
using testing::message_of;

EnvironmentMap tf_config(const std::string& cluster, const std::string& type, int index) {
  return {{"TF_CONFIG", R"({"cluster":{)" + cluster + R"(},"task":{"type":")" + type + R"(","index":)" +
                            std::to_string(index) + "}}"}};
}

const std::string kCluster = R"("chief":["a:1"],"worker":["b:1","c:1"],"ps":["d:1","e:1"])";

TEST(ReadCluster, PutsTheChiefBeforeTheWorkers) {
  const auto worker = read_cluster(tf_config(kCluster, "worker", 1));
  ASSERT_TRUE(worker);
  EXPECT_EQ(worker->workers, (std::vector<std::string>{"a:1", "b:1", "c:1"}));
  EXPECT_EQ(worker->servers, (std::vector<std::string>{"d:1", "e:1"}));
  EXPECT_FALSE(worker->is_server);
  EXPECT_EQ(worker->index, 2);
  EXPECT_EQ(read_cluster(tf_config(kCluster, "chief", 0))->index, 0);
  const auto server = read_cluster(tf_config(kCluster, "ps", 1));
  EXPECT_TRUE(server->is_server);
  EXPECT_EQ(server->index, 1);
  EXPECT_FALSE(read_cluster({}));
}

TEST(ReadCluster, NamesWhatContradictsWhat) {
  const auto error = [](const EnvironmentMap& environment) {
    return message_of<UsageError>([&] { read_cluster(environment); });
  };
  expect_facts(error(tf_config(kCluster, "worker", 2)), {"TF_CONFIG", "worker", "2"});
  expect_facts(error(tf_config(kCluster, "evaluator", 0)), {"TF_CONFIG", "evaluator"});
  EXPECT_TRUE(is_evaluator(tf_config(kCluster, "evaluator", 0)));
  EXPECT_FALSE(is_evaluator(tf_config(kCluster, "worker", 0)));
  EXPECT_FALSE(is_evaluator({}));
  // Sources of an evaluator: its own role, the cluster, or the launcher.
  EXPECT_FALSE(has_evaluator(tf_config(kCluster, "worker", 0)));
  EXPECT_TRUE(has_evaluator(tf_config(kCluster, "evaluator", 0)));
  EXPECT_TRUE(has_evaluator(tf_config(kCluster + R"(,"evaluator":["f:1"])", "worker", 0)));
  EXPECT_TRUE(has_evaluator({{"RONDO_EVALUATOR", "1"}}));
  EXPECT_FALSE(has_evaluator({}));
  expect_facts(error(tf_config(R"("worker":["b:1"])", "worker", 0)), {"TF_CONFIG", "ps"});
  expect_facts(error(tf_config(R"("worker":[],"ps":["b:1"])", "ps", 0)), {"TF_CONFIG", "worker"});
  expect_facts(error(tf_config(R"("worker":["b:1"],"ps":["b:1"])", "ps", 0)), {"worker", "ps", "b:1"});
}

}  // namespace
}  // namespace rondo::env_cluster_test
