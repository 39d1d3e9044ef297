#include "rondo/strategy/strategy.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/strategy/one_device.h"
#include "rondo/strategy/process_strategy.h"
#include "rondo/strategy/registry.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"

namespace rondo::strategy_test {
namespace {

// A strategy with values over ranks that cannot train.
class ValuesOnly final : public ProcessStrategy {
 public:
  explicit ValuesOnly(Context context) : ProcessStrategy("values_only", std::move(context)) {}
  using ProcessStrategy::prepare;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module>) override { return nullptr; }
};

TEST(ProcessStrategy, ReducesElementByElement) {
  testing::run_ranks(3, "native", [](Context& context) {
    ValuesOnly strategy(context);
    EXPECT_EQ(strategy.num_replicas_in_sync(), 3);
    EXPECT_EQ(strategy.input_shard().index, context.rank());
    const at::Tensor mine = torch::tensor({1.0 + context.rank(), 10.0});
    EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::SUM, mine), torch::tensor({6.0, 30.0})));
    EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::MAX, mine), torch::tensor({3.0, 10.0})));
    EXPECT_TRUE(torch::equal(mine, torch::tensor({1.0 + context.rank(), 10.0})));  // not in place
  });
}

TEST(ProcessStrategy, MeanOverAnAxisCountsTrueElements) {
  testing::run_ranks(3, "native", [](Context& context) {
    ValuesOnly strategy(context);
    // Rank 0 has one row, rank 1 two, rank 2 none.
    const std::int64_t rows = context.rank() == 2 ? 0 : context.rank() + 1;
    const at::Tensor mine = torch::full({rows, 2}, 1.0 + context.rank());
    EXPECT_TRUE(torch::allclose(strategy.reduce(ReduceOp::AVG, mine, 0), torch::full({2}, 5.0 / 3.0)));
    EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::SUM, mine, 0), torch::full({2}, 5.0)));
    EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::MIN, mine, -2), torch::full({2}, 1.0)));
    EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::MAX, mine.to(torch::kInt), 0),
                             torch::full({2}, 2, torch::kInt)));
  });
}

TEST(ProcessStrategy, GathersRowsOfUnequalNumber) {
  testing::run_ranks(3, "native", [](Context& context) {
    ValuesOnly strategy(context);
    const int rank = context.rank();
    const at::Tensor mine = torch::full({rank, 2}, rank, torch::kLong);
    EXPECT_TRUE(
        torch::equal(strategy.gather(mine, 0), torch::tensor({{1, 1}, {2, 2}, {2, 2}}, torch::kLong)));
    EXPECT_TRUE(
        torch::equal(strategy.gather(mine.t(), 1), torch::tensor({{1, 2, 2}, {1, 2, 2}}, torch::kLong)));
  });
}

TEST(ProcessStrategy, RunsOneReplicaPerProcess) {
  testing::run_ranks(2, "native", [](Context& context) {
    ValuesOnly strategy(context);
    const ReplicaValue value = strategy.run([](int replica) { return torch::full({1}, replica); });
    ASSERT_EQ(strategy.local_results(value).size(), 1U);
    EXPECT_EQ(strategy.local_results(value)[0].item<float>(), static_cast<float>(context.rank()));
  });
}

TEST(ProcessStrategy, RejectsWhatCannotBe) {
  testing::run_ranks(1, "native", [](Context& context) {
    ValuesOnly strategy(context);
    EXPECT_THROW(strategy.reduce(ReduceOp::SUM, torch::ones({2}), 1), UsageError);
    EXPECT_THROW(strategy.reduce(ReduceOp::PRODUCT, torch::ones({2}), 0), UsageError);
    EXPECT_THROW(strategy.reduce(ReduceOp::SUM, ReplicaValue(std::vector<at::Tensor>(2))), UsageError);
  });
}

TEST(Strategy, ScopesNest) {
  testing::run_ranks(1, "native", [](Context& context) {
    OneDevice outer(context);
    OneDevice inner(context);
    EXPECT_EQ(Strategy::current(), nullptr);
    {
      const auto outer_scope = outer.scope();
      EXPECT_EQ(Strategy::current(), &outer);
      {
        const auto inner_scope = inner.scope();
        EXPECT_EQ(Strategy::current(), &inner);
      }
      EXPECT_EQ(Strategy::current(), &outer);
    }
    EXPECT_EQ(Strategy::current(), nullptr);
  });
}

TEST(OneDevice, RefusesSeveralRanks) {
  testing::run_ranks(2, "native", [](Context& context) {
    testing::expect_facts(testing::message_of<UsageError>([&] { OneDevice strategy(context); }),
                          {"one_device", "one process", "has 2", "ddp"});
  });
}

TEST(OneDevice, LeavesTheModelAlone) {
  testing::run_ranks(1, "native", [](Context& context) {
    OneDevice strategy(context);
    auto model = std::make_shared<torch::nn::LinearImpl>(2, 1);
    const at::Tensor before = model->weight.detach().clone();
    auto prepared = strategy.prepare(model);
    EXPECT_EQ(&prepared->module(), model.get());
    prepared->begin_step({.samples = 3});
    model->forward(torch::ones({3, 2})).sum().backward();
    prepared->finish_backward();
    EXPECT_TRUE(torch::equal(model->weight, before));
    EXPECT_TRUE(torch::equal(model->weight.grad(), torch::full({1, 2}, 3.0)));
    EXPECT_EQ(prepared->communication_times().busy, Duration::zero());
  });
}

TEST(StrategyRegistry, FindsNamesAndAliases) {
  testing::run_ranks(1, "native", [](Context& context) {
    StrategyRegistry registry = local_strategies();
    registry.add({.name = "values_only", .summary = "for this test", .aliases = {"just_values"}},
                 [](const Context& c) { return std::make_unique<ValuesOnly>(c); });
    EXPECT_EQ(registry.make("just_values", context)->name(), "values_only");
    EXPECT_EQ(registry.names(), (std::vector<std::string>{"default", "one_device", "values_only"}));
    EXPECT_EQ(registry.declaration("just_values").summary, "for this test");
    testing::expect_facts(testing::message_of<UsageError>([&] { registry.make("zero9", context); }),
                          {"'zero9'", "default", "one_device", "values_only", "just_values (values_only)"});
  });
}

struct PaceOptions {
  int pace = 3;
};

TEST(StrategyRegistry, OptionsComeAsStructOrAsText) {
  testing::run_ranks(1, "native", [](Context& context) {
    OptionsOf<PaceOptions> table;
    table.add("pace", &PaceOptions::pace, "For this test", above_zero());
    std::vector<int> paces;
    StrategyRegistry registry = local_strategies();
    registry.add<PaceOptions>({.name = "paced", .summary = "for this test", .options = table},
                              [&](const Context& c, const PaceOptions& options) {
                                paces.push_back(options.pace);
                                return std::make_unique<ValuesOnly>(c);
                              });
    registry.make("paced", context);
    registry.make("paced", context, PaceOptions{.pace = 5});
    registry.make("paced", context, OptionValues{{"pace", "7"}});
    EXPECT_EQ(paces, (std::vector<int>{3, 5, 7}));
    EXPECT_EQ(registry.read<PaceOptions>("paced", {{"pace", "9"}}).pace, 9);

    const auto refusal = [](const auto& make) -> std::string {
      try {
        make();
      } catch (const UsageError& error) {
        return error.what();
      }
      return "nothing was refused";
    };
    const std::string wrong_struct = refusal([&] { registry.make("one_device", context, PaceOptions{}); });
    EXPECT_NE(wrong_struct.find("one_device"), std::string::npos) << wrong_struct;
    EXPECT_NE(wrong_struct.find("PaceOptions"), std::string::npos) << wrong_struct;
    const std::string lacking = refusal([&] { registry.make("paced", context, {{"speed", "1"}}); });
    EXPECT_NE(lacking.find("'speed'"), std::string::npos) << lacking;
    EXPECT_NE(lacking.find("pace"), std::string::npos) << lacking;
    EXPECT_NE(refusal([&] {
                registry.make("paced", context, {{"pace", "0"}});
              }).find("--pace 0"),
              std::string::npos);
    EXPECT_THROW(registry.add<PaceOptions>(
                     {.name = "other", .summary = "declares nothing"},
                     [](const Context& c, const PaceOptions&) { return std::make_unique<ValuesOnly>(c); }),
                 Error);
  });
}

}  // namespace
}  // namespace rondo::strategy_test
