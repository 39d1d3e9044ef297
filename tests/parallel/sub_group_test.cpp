// Strategies on some of the ranks: two groups of one job train different models at the same time.
#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "tests/parallel/sharded/layers.h"

namespace rondo::testing::sub_group_test {
namespace {

struct Half {
  std::vector<int> ranks;
  std::string strategy;
  TrainingPlan plan;
};

class SubGroup : public ::testing::TestWithParam<std::vector<int>> {};  // host of each rank

INSTANTIATE_TEST_SUITE_P(Hosts, SubGroup, ::testing::Values(std::vector<int>{}, std::vector<int>{0, 0, 1, 1}),
                         [](const auto& info) { return info.param.empty() ? "one" : "two"; });

TEST_P(SubGroup, EachTrainsAsAJobOfItsOwn) {
  const std::vector<Half> halves = {{{2, 0}, "zero2", {.steps = 4}},
                                    {{3, 1}, "ddp", {.steps = 6, .clip_norm = 0.1}}};
  std::vector<std::vector<at::Tensor>> expected;
  for (const Half& half : halves) expected.push_back(train_alone(half.plan));
  run_ranks(
      4, GetParam().empty() ? "native" : "hierarchical(native, gloo)",
      [&](Context& context) {
        std::vector<Group> groups;
        for (const Half& half : halves) groups.push_back(context.new_group(half.ranks));
        const std::size_t mine = groups[0].member() ? 0 : 1;
        EXPECT_THROW(context.within(groups[1 - mine]), UsageError);
        // Runs twice, to check that the second round's groups do not interfere with the first's.
        for (int round = 0; round < 2; ++round) {
          Context part = context.within(groups[mine]);
          EXPECT_EQ(part.world_size(), 2);
          EXPECT_EQ(part.rank(), groups[mine].rank());
          EXPECT_EQ(part.local_world_size(), GetParam().empty() ? 2 : 1) << "members on this host";
          EXPECT_EQ(part.world().ranks(), (std::vector<int>{0, 1}));
          EXPECT_EQ(part.group("data").size(), 2);
          ShardedOptions options;
          options.find_unused_parameters = true;
          const auto result = train_on_ranks(part, halves[mine].strategy, options, halves[mine].plan);
          EXPECT_LT(largest_difference(result, expected[mine]), 1e-10) << halves[mine].strategy;
        }
      },
      std::chrono::seconds(60), GetParam());
}

}  // namespace
}  // namespace rondo::testing::sub_group_test
