// tf.distribute's operations: one custom loop gives under every synchronous strategy the same result as the
// Trainer in one process.

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <set>

#include "rondo/base/error.h"
#include "rondo/strategy/distributed_variable.h"
#include "rondo/strategy/one_device.h"
#include "rondo/strategy/replica_context.h"
#include "rondo/train/trainer.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/train/digits.h"

namespace rondo::testing::strategy_operations_test {
namespace {

struct Way {
  std::string strategy;
  int ranks = 1;
  OptionValues options = {};
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.strategy << " on " << way.ranks;
}

const OptionValues kTwo = {{"replicas", "2"}};

class EveryStrategy : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, EveryStrategy,
                         ::testing::Values(Way{"default"}, Way{"one_device"}, Way{"ddp", 2}, Way{"zero1", 2},
                                           Way{"zero2", 2}, Way{"zero3", 2}, Way{"data_parallel", 1, kTwo},
                                           Way{"mirrored", 1, kTwo}, Way{"central_storage", 1, kTwo},
                                           Way{"multi_worker_mirrored", 2, kTwo},
                                           Way{"multi_worker_mirrored", 2}, Way{"tpu", 4},
                                           Way{"tpu", 2, {{"torus", "2x1"}}}));

constexpr std::int64_t kGlobalBatch = 12;
constexpr int kEpochs = 3;

OptimizerFactory sgd() {
  return [](torch::nn::Module& module) {
    return make_optimizer({.name = "sgd", .learning_rate = 0.3, .momentum = 0.9}, module);
  };
}

std::vector<double> losses_of_trainer(const Way& way) {
  std::vector<double> losses;
  run_ranks(way.ranks, "native", [&](Context& context) {
    const auto strategy = all_strategies().make(way.strategy, context, way.options);
    Trainer trainer(*strategy, [] { return small_model(); });
    trainer.compile(sgd());
    const auto recorder = std::make_shared<Recorder>();
    trainer.fit(std::make_shared<Digits>(40), {.epochs = kEpochs,
                                               .batch_size = kGlobalBatch / strategy->num_replicas_in_sync(),
                                               .shuffle = false,
                                               .callbacks = {recorder}});
    if (context.rank() == 0) losses = recorder->losses();
  });
  return losses;
}

// Runs the loop of TensorFlow's guide: distribute, run, reduce.
std::vector<double> losses_of_own_loop(const Way& way) {
  std::vector<double> losses;
  run_ranks(way.ranks, "native", [&](Context& context) {
    const auto strategy = all_strategies().make(way.strategy, context, way.options);
    const auto training = strategy->prepare({.model = [] { return small_model(); }, .optimizer = sgd()});
    const auto data = strategy->distribute(std::make_shared<Digits>(40), {.global_batch_size = kGlobalBatch});
    const LossFunction loss_function = cross_entropy;
    const auto step = [&](const rondo::Batch& batch) {
      PreparedModel& model = training->prepared();
      model.begin_step({.samples = batch.samples});
      const Loss loss = loss_function(training->forward(batch), batch.targets, batch.samples);
      training->optimizer().zero_grad();
      loss.mean.backward();
      model.finish_backward();
      model.step(training->optimizer());
      return torch::stack(
          {loss.sum.to(torch::kDouble), torch::tensor(double(loss.predictions), torch::kDouble)});
    };
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      while (const auto batches = data->next()) {
        const at::Tensor sums = strategy->reduce(ReduceOp::SUM, strategy->run(step, *batches));
        if (context.rank() == 0) losses.push_back((sums[0] / sums[1]).item<double>());
      }
    }
  });
  return losses;
}

TEST_P(EveryStrategy, CustomLoopAndTrainerEqualOneProcess) {
  const std::vector<double> expected = losses_of_trainer({"one_device"});
  ASSERT_EQ(expected.size(), 12U);
  EXPECT_LT(expected.back(), expected.front());
  const std::vector<double> trainer = losses_of_trainer(GetParam());
  const std::vector<double> own = losses_of_own_loop(GetParam());
  ASSERT_EQ(trainer.size(), expected.size());
  ASSERT_EQ(own.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(trainer[i], expected[i], 1e-5) << "step " << i + 1;
    EXPECT_NEAR(own[i], expected[i], 1e-5) << "step " << i + 1;
  }
}

// Runs `body` with replicas of two processes with two each.
void on_four_replicas(const std::function<void(Context&, Strategy&)>& body) {
  run_ranks(2, "native", [&](Context& context) {
    const auto strategy = all_strategies().make("multi_worker_mirrored", context, kTwo);
    body(context, *strategy);
  });
}

TEST(Operations, RunKnowsItsReplicaAndReducesWithinIt) {
  on_four_replicas([](Context& context, Strategy& strategy) {
    EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
    EXPECT_EQ(ReplicaContext::current(), nullptr);
    const ReplicaValue values = strategy.run([&](int replica) {
      const ReplicaContext* const here = ReplicaContext::current();
      EXPECT_EQ(here->replica(), replica);
      EXPECT_EQ(&here->strategy(), &strategy);
      EXPECT_EQ(Strategy::current(), &strategy);
      at::Tensor sum = here->all_reduce(ReduceOp::SUM, torch::tensor({replica + 1}));
      EXPECT_EQ(sum.item<std::int64_t>(), 10);
      sum.fill_(replica);  // memory of this replica
      EXPECT_EQ(here->all_reduce(ReduceOp::MAX, torch::tensor({replica * 1.0})).item<double>(), 3.0);
      return sum;
    });
    const std::vector<at::Tensor> local = strategy.local_results(values);
    ASSERT_EQ(local.size(), 2U);
    EXPECT_EQ(local[0].item<std::int64_t>(), 2 * context.rank());
    EXPECT_EQ(local[1].item<std::int64_t>(), 2 * context.rank() + 1);
  });
}

TEST(Operations, ReduceAndGatherGoOverAllReplicas) {
  on_four_replicas([](Context&, Strategy& strategy) {
    // Replica r has r rows.
    const ReplicaValue rows = strategy.run([](int replica) {
      return torch::full({replica, 2}, 1.0 * replica, torch::kDouble);
    });
    EXPECT_TRUE(
        torch::equal(strategy.reduce(ReduceOp::SUM, rows, 0), torch::full({2}, 14.0, torch::kDouble)));
    EXPECT_TRUE(
        torch::allclose(strategy.reduce(ReduceOp::AVG, rows, 0), torch::full({2}, 14.0 / 6, torch::kDouble)));
    EXPECT_TRUE(torch::equal(strategy.gather(rows, 0).select(1, 0),
                             torch::tensor({1.0, 2.0, 2.0, 3.0, 3.0, 3.0}, torch::kDouble)));
    const ReplicaValue numbers = strategy.run([](int replica) {
      return torch::tensor({1.0 * replica, 1.0});
    });
    EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::SUM, numbers), torch::tensor({6.0, 4.0})));
    EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::AVG, numbers), torch::tensor({1.5, 1.0})));
    EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::MAX, numbers), torch::tensor({3.0, 1.0})));
    EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::PRODUCT, numbers), torch::tensor({0.0, 1.0})));
    EXPECT_THROW(strategy.reduce(ReduceOp::SUM, ReplicaValue(std::vector<at::Tensor>(3))), UsageError);
  });
}

TEST(Operations, VariablesAreCombinedAsTheySay) {
  using Sync = VariableSynchronization;
  using Sum = VariableAggregation;
  on_four_replicas([](Context& context, Strategy& strategy) {
    const at::Tensor ten = torch::tensor({context.rank() == 0 ? 10.0 : 99.0});
    const auto ran = [&](DistributedVariable& variable) {
      strategy.run([&](int replica) {
        variable.assign_add(torch::tensor({1.0 + replica}));
        return variable.value().clone();
      });
      return variable.copies().tensors();
    };
    DistributedVariable sum(strategy, ten, {Sync::on_write, Sum::sum});
    for (const at::Tensor& copy : ran(sum)) EXPECT_EQ(copy.item<double>(), 20.0);
    EXPECT_EQ(sum.value().item<double>(), 20.0);
    DistributedVariable mean(strategy, ten, {Sync::on_write, Sum::mean});
    for (const at::Tensor& copy : ran(mean)) EXPECT_EQ(copy.item<double>(), 12.5);
    DistributedVariable first(strategy, ten, {Sync::on_write, Sum::only_first_replica});
    for (const at::Tensor& copy : ran(first)) EXPECT_EQ(copy.item<double>(), 11.0);

    DistributedVariable read(strategy, ten, {Sync::on_read, Sum::mean});
    EXPECT_EQ(ran(read)[0].item<double>(), 11.0 + 2 * context.rank());
    EXPECT_EQ(read.value().item<double>(), 12.5);
    DistributedVariable read_sum(strategy, torch::zeros({1}), {Sync::on_read, Sum::sum});
    ran(read_sum);
    EXPECT_EQ(read_sum.value().item<double>(), 10.0);
    read_sum.assign(torch::tensor({8.0}));
    EXPECT_EQ(read_sum.copies().tensors()[1].item<double>(), 2.0);
    EXPECT_EQ(read_sum.value().item<double>(), 8.0);

    DistributedVariable none(strategy, ten, {Sync::none, Sum::none});
    EXPECT_EQ(ran(none)[1].item<double>(), 12.0 + 2 * context.rank());
    EXPECT_THROW(none.value(), UsageError);
    none.assign_sub(torch::tensor({1.0}));
    EXPECT_EQ(none.copies().tensors()[1].item<double>(), 11.0 + 2 * context.rank());

    DistributedVariable unsaid(strategy, ten);
    expect_facts(message_of<UsageError>([&] { ran(unsaid); }), {"on_write", "aggregation", "mean"});
    unsaid.assign(torch::tensor({3.0}));
    EXPECT_EQ(unsaid.value().item<double>(), 3.0);
  });
}

TEST(Operations, DefaultStrategyDoesNothingOutsideScopes) {
  Strategy& none = Strategy::current_or_default();
  EXPECT_EQ(none.name(), "default");
  EXPECT_EQ(none.num_replicas_in_sync(), 1);
  const ReplicaValue value = none.run([](int replica) {
    EXPECT_EQ(ReplicaContext::current()->all_reduce(ReduceOp::SUM, torch::tensor({4.0})).item<double>(), 4.0);
    return torch::tensor({replica + 5.0});
  });
  EXPECT_EQ(none.reduce(ReduceOp::SUM, value).item<double>(), 5.0);
  EXPECT_EQ(none.gather(value, 0).item<double>(), 5.0);
  EXPECT_THROW(none.context(), UsageError);
  run_ranks(1, "native", [&](Context& context) {
    const auto mirrored = all_strategies().make("mirrored", context, kTwo);
    const auto scope = mirrored->scope();
    EXPECT_EQ(&Strategy::current_or_default(), mirrored.get());
  });
  EXPECT_EQ(&Strategy::current_or_default(), &none);
}

// Input.

// Returns, for each step, the sample indices of each replica of this process.
std::vector<std::vector<std::vector<std::int64_t>>> read_all(DistributedDataset& data) {
  std::vector<std::vector<std::vector<std::int64_t>>> steps;
  while (const auto batches = data.next()) {
    auto& step = steps.emplace_back();
    for (const rondo::Batch& batch : *batches) {
      EXPECT_EQ(batch.input().size(0), batch.samples);
      step.push_back(batch.indices);
    }
  }
  return steps;
}

TEST(Distribute, UnevenReplicasGetSmallerAndEmptyBatches) {
  on_four_replicas([](Context& context, Strategy& strategy) {
    const auto data = strategy.distribute(std::make_shared<Digits>(17), {.global_batch_size = 8});
    EXPECT_EQ(data->steps_per_epoch(), 3);
    for (int epoch = 0; epoch < 2; ++epoch) {
      const auto steps = read_all(*data);
      ASSERT_EQ(steps.size(), 3U);
      EXPECT_EQ(steps[0][0].size() + steps[0][1].size(), 4U);
      // One sample is left, on rank 0.
      EXPECT_EQ(steps[2][0].size(), context.rank() == 0 ? 1U : 0U);
      EXPECT_EQ(steps[2][1].size(), 0U);
    }
    expect_facts(message_of<UsageError>(
                     [&] { strategy.distribute(std::make_shared<Digits>(17), {.global_batch_size = 6}); }),
                 {"6", "4 replicas"});
    expect_facts(message_of<UsageError>([&] {
                   strategy.distribute(std::make_shared<Digits>(17),
                                       {.global_batch_size = 8, .shard = AutoShard::file});
                 }),
                 {"17", "DatasetFiles"});
  });
}

// Returns files that are identified by their names; each has four samples.
DatasetFiles files(int count) {
  DatasetFiles files;
  for (int i = 0; i < count; ++i) files.files.push_back(std::to_string(i));
  files.open = [](const std::vector<std::string>& names) -> std::shared_ptr<const Dataset> {
    std::vector<float> numbers;
    for (const std::string& name : names) numbers.insert(numbers.end(), 4, std::stof(name));
    const at::Tensor inputs = torch::tensor(numbers).unsqueeze(1);
    return std::make_shared<Rows>(inputs, torch::zeros({inputs.size(0)}, torch::kLong), 2);
  };
  return files;
}

TEST(Distribute, FilesGoToPipelinesAsThePolicySays) {
  on_four_replicas([](Context& context, Strategy& strategy) {
    const auto seen = [&](int count, AutoShard shard) {
      std::multiset<int> names;
      const auto data = strategy.distribute(files(count), {.global_batch_size = 4, .shard = shard});
      while (const auto batches = data->next()) {
        for (const rondo::Batch& batch : *batches) {
          for (std::int64_t i = 0; i < batch.samples; ++i)
            names.insert(static_cast<int>(batch.input()[i][0].item<float>()));
        }
      }
      return names;
    };
    const int rank = context.rank();
    using Names = std::multiset<int>;
    EXPECT_EQ(seen(3, AutoShard::file), rank == 0 ? (Names{0, 0, 0, 0, 2, 2, 2, 2}) : (Names{1, 1, 1, 1}));
    EXPECT_EQ(seen(2, AutoShard::automatic), rank == 0 ? (Names{0, 0, 0, 0}) : (Names{1, 1, 1, 1}));
    EXPECT_EQ(seen(1, AutoShard::automatic), (Names{0, 0}));  // too few files: by sample
    EXPECT_EQ(seen(2, AutoShard::data), (Names{0, 0, 1, 1}));
    EXPECT_EQ(seen(2, AutoShard::off), (Names{0, 0, 0, 0, 1, 1, 1, 1}));
    expect_facts(message_of<UsageError>([&] { seen(1, AutoShard::file); }), {"2 input pipelines", "1"});
  });
  EXPECT_EQ(parse_auto_shard("off", "--input-sharding"), AutoShard::off);
  EXPECT_THROW(parse_auto_shard("files", "--input-sharding"), UsageError);
}

TEST(Distribute, FunctionOfAnInputContextMakesInput) {
  on_four_replicas([](Context& context, Strategy& strategy) {
    const auto data = strategy.distribute([&](const InputContext& input) {
      EXPECT_EQ(input.input_pipeline_id, context.rank());
      EXPECT_EQ(input.num_input_pipelines, 2);
      EXPECT_EQ(input.num_replicas_in_sync, 4);
      return PipelineInput{.data = std::make_shared<Digits>(6 + 6 * input.input_pipeline_id),
                           .batch_size = input.get_per_replica_batch_size(12)};
    });
    const auto steps = read_all(*data);
    ASSERT_EQ(steps.size(), 2U);  // length of the longer pipeline
    EXPECT_EQ(steps[1][0].size(), context.rank() == 0 ? 0U : 3U);
  });
}

}  // namespace
}  // namespace rondo::testing::strategy_operations_test
