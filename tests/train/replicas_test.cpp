// Strategies with several replicas in a process, through the Trainer: their results equal one process with
// the joint batch.

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <array>
#include <cmath>
#include <limits>
#include <mutex>

#include "rondo/base/error.h"
#include "rondo/parallel/replicas/replica_exchange.h"
#include "rondo/train/trainer.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"
#include "tests/train/equality_models.h"

namespace rondo::testing::replicas_test {
namespace {

struct Way {
  std::string strategy;
  OptionValues options = {};
  int ranks = 1;
  int replicas = 2;  // on all ranks
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  out << way.strategy << " on " << way.ranks << " ranks";
  for (const auto& [name, value] : way.options) out << " " << name << " " << value;
  return out;
}

std::vector<Way> ways() {
  return {
      {"data_parallel", {{"replicas", "2"}}},
      {"data_parallel", {{"devices", "cpu,cpu,cpu"}}, 1, 3},
      {"mirrored", {{"replicas", "2"}}},
      {"mirrored", {{"replicas", "3"}, {"cross-device-ops", "hierarchical_copy"}}, 1, 3},
      {"mirrored", {{"devices", "cpu,cpu"}, {"cross-device-ops", "one_device"}, {"mirrored-num-packs", "0"}}},
      {"central_storage", {{"replicas", "2"}}},
      {"central_storage", {{"replicas", "3"}}, 1, 3},
      {"multi_worker_mirrored", {{"replicas", "2"}}, 2, 4},
      {"multi_worker_mirrored",
       {{"replicas", "2"}, {"mwm-bytes-per-pack", "256"}, {"mwm-implementation", "ring"}},
       2,
       4},
      {"multi_worker_mirrored", {{"replicas", "1"}}, 2, 2}};
}

// Model, data and options of a training.
struct Training {
  ModelFactory model;
  std::shared_ptr<const Dataset> data;
  FitOptions fit = {};
  PrecisionOptions precision = {};
};

struct Outcome {
  std::vector<double> losses;
  std::vector<at::Tensor> tensors;  // parameters and buffers
  std::map<std::string, double> evaluation;
};

// Trains under `way`, with `joint` samples of all replicas in a step.
Outcome train(const Way& way, const Training& what, std::int64_t joint) {
  Outcome outcome;
  run_ranks(way.ranks, "native", [&](Context& context) {
    const auto strategy = all_strategies().make(way.strategy, context, way.options);
    Trainer trainer(*strategy, what.model, c10::kCPU, what.precision);
    trainer.compile(adamw());
    const auto recorder = std::make_shared<Recorder>();
    FitOptions fit = what.fit;
    fit.batch_size = joint / way.replicas;
    fit.callbacks = {recorder};
    trainer.fit(what.data, fit);
    const auto evaluation = trainer.evaluate(*what.data);
    if (context.rank() != 0) return;
    outcome.losses = recorder->losses();
    outcome.evaluation = evaluation;
    for (const at::Tensor& tensor : trainer.model().module->parameters())
      outcome.tensors.push_back(tensor.detach().clone());
    for (const at::Tensor& tensor : trainer.model().module->buffers())
      outcome.tensors.push_back(tensor.clone());
  });
  return outcome;
}

void expect_same(const Outcome& result, const Outcome& expected, double tolerance) {
  ASSERT_EQ(result.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < result.losses.size(); ++i)
    EXPECT_NEAR(result.losses[i], expected.losses[i], tolerance) << "step " << i + 1;
  ASSERT_EQ(result.tensors.size(), expected.tensors.size());
  for (std::size_t i = 0; i < result.tensors.size(); ++i) {
    EXPECT_TRUE(torch::allclose(result.tensors[i].to(torch::kDouble), expected.tensors[i].to(torch::kDouble),
                                0, tolerance))
        << "tensor " << i;
  }
  for (const auto& [name, value] : expected.evaluation)
    EXPECT_NEAR(result.evaluation.at(name), value, tolerance) << name;
}

class Replicas : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, Replicas, ::testing::ValuesIn(ways()));

TEST_P(Replicas, EqualOneProcessOnTheJointBatch) {
  for (const char* name : {"gpt", "sharing"}) {
    // ddp, which this strategy equals here, needs an option for unused parameters.
    if (std::string(name) == "sharing" && GetParam().replicas == GetParam().ranks) continue;
    // 60 samples in batches of 24: the last one of an epoch is smaller.
    const Training what{.model = [name] { return make_subject(name).model; },
                        .data = make_subject(name).data,
                        .fit = {.steps = 8, .accumulate = 1, .seed = 5, .clip_norm = 0.5}};
    const Outcome expected = train({"one_device", {}, 1, 1}, what, 24);
    SCOPED_TRACE(name);
    expect_same(train(GetParam(), what, 24), expected, 1e-9);
  }
}

TEST_P(Replicas, CountUnequalPartsAndNoneByTheirSamples) {
  // 13 samples in global batches of 12: in the last one all replicas except one have none.
  const Training what{.model = [] { return small_model(); },
                      .data = std::make_shared<Digits>(13),
                      .fit = {.epochs = 3, .accumulate = 2, .seed = 3}};
  expect_same(train(GetParam(), what, 12), train({"one_device", {}, 1, 1}, what, 12), 2e-5);
}

TEST_P(Replicas, TrainInMixedPrecision) {
  const Training what{.model = [] { return small_model(); },
                      .data = std::make_shared<Digits>(48),
                      .fit = {.steps = 6, .seed = 3, .clip_norm = 1.0},
                      .precision = {.level = OptLevel::O1, .loss_scale = LossScale{.dynamic = true}}};
  expect_same(train(GetParam(), what, 12), train({"one_device", {}, 1, 1}, what, 12), 2e-2);
  Training masters = what;
  masters.precision = {.level = OptLevel::O2};
  if (GetParam().strategy == "central_storage") {
    try {
      train(GetParam(), masters, 12);
      FAIL() << "nothing was refused";
    } catch (const UsageError& error) {
      expect_facts(error.what(), {"central_storage", "master weights", "O1"});
    }
  } else {
    expect_same(train(GetParam(), masters, 12), train({"one_device", {}, 1, 1}, masters, 12), 2e-2);
  }
}

TEST_P(Replicas, ResumeBitForBit) {
  const Way way = GetParam();
  const TemporaryDirectory directory;
  const auto data = std::make_shared<Digits>(40);
  std::vector<double> straight, resumed;
  run_ranks(way.ranks, "native", [&](Context& context) {
    const auto trained = [&](std::int64_t steps, bool saves, bool restores) {
      const auto strategy = all_strategies().make(way.strategy, context, way.options);
      Trainer trainer(*strategy, [] { return small_model(); });
      trainer.compile(adamw());
      if (restores) trainer.restore(directory.path());
      const auto recorder = std::make_shared<Recorder>();
      trainer.fit(data,
                  {.steps = steps, .batch_size = 12 / way.replicas, .seed = 3, .callbacks = {recorder}});
      if (saves) trainer.save(directory.path(), 1);
      return recorder->losses();
    };
    const std::vector<double> all = trained(9, false, false);
    trained(5, true, false);
    const std::vector<double> rest = trained(9, false, true);
    if (context.rank() != 0) return;
    straight = all;
    resumed = rest;
  });
  ASSERT_EQ(resumed.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(resumed[i], straight[i + 5]) << "step " << i + 6;
}

// Every replica discards optimizer state of steps that a restore undoes.
TEST_P(Replicas, TrainAnewFromACheckpointOfTheBeginning) {
  const Way way = GetParam();
  const TemporaryDirectory directory;
  const auto data = std::make_shared<Digits>(36);
  std::vector<double> first, again;
  run_ranks(way.ranks, "native", [&](Context& context) {
    const auto strategy = all_strategies().make(way.strategy, context, way.options);
    Trainer trainer(*strategy, [] { return small_model(); });
    trainer.compile(OptimizerOptions{.name = "sgd", .learning_rate = 0.1, .momentum = 0.9});
    trainer.save(directory.path(), 1);
    const auto losses = [&] {
      const auto recorder = std::make_shared<Recorder>();
      trainer.fit(data, {.steps = 6, .batch_size = 12 / way.replicas, .seed = 3, .callbacks = {recorder}});
      return recorder->losses();
    };
    const std::vector<double> of_first = losses();
    trainer.restore(directory.path());
    const std::vector<double> of_second = losses();
    if (context.rank() != 0) return;
    first = of_first;
    again = of_second;
  });
  EXPECT_EQ(first.size(), 6U);
  EXPECT_EQ(again, first);
}

TEST_P(Replicas, MoveToAndFromOneDevice) {
  const Way way = GetParam();
  const TemporaryDirectory directory;
  const auto data = std::make_shared<Digits>(40);
  const auto losses = [&](const Way& by, std::int64_t steps, bool restores, bool saves) {
    std::vector<double> result;
    run_ranks(by.ranks, "native", [&](Context& context) {
      const auto strategy = all_strategies().make(by.strategy, context, by.options);
      Trainer trainer(*strategy, [] { return small_model(); });
      trainer.compile(adamw());
      if (restores) trainer.restore(directory.path());
      const auto recorder = std::make_shared<Recorder>();
      trainer.fit(data, {.steps = steps, .batch_size = 12 / by.replicas, .seed = 3, .callbacks = {recorder}});
      if (saves) trainer.save(directory.path(), 1);
      if (context.rank() == 0) result = recorder->losses();
    });
    return result;
  };
  const Way alone{"one_device", {}, 1, 1};
  const std::vector<double> expected = losses(alone, 9, false, false);
  losses(way, 5, false, true);
  const std::vector<double> rest = losses(alone, 9, true, true);
  ASSERT_EQ(rest.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(rest[i], expected[i + 5], 1e-5);
  losses(alone, 5, false, false);
  const std::vector<double> further = losses(way, 12, true, false);
  EXPECT_EQ(further.size(), 3U);
}

// Placement of variables, which differs between the strategies.

// Trains two steps, then returns the address of each replica's weight.
std::vector<const void*> places_of_weights(const std::string& name) {
  std::vector<const void*> places(2);
  run_ranks(1, "native", [&](Context& context) {
    const auto strategy = all_strategies().make(name, context, {{"replicas", "2"}});
    auto training = strategy->prepare({.model = [] { return small_model(); }, .optimizer = adamw()});
    training->train_step(std::vector<rondo::Batch>{Digits(8).get(std::vector<std::int64_t>{0, 1, 2, 3})}, {});
    strategy->run([&](int replica) {
      places[static_cast<std::size_t>(replica)] = training->model().module->parameters()[0].data_ptr();
      return torch::zeros({});
    });
  });
  return places;
}

TEST(VariablePlacement, MirroredHasCopiesAndCentralStorageOne) {
  const auto mirrored = places_of_weights("mirrored");
  EXPECT_NE(mirrored[0], mirrored[1]);
  const auto central = places_of_weights("central_storage");
  EXPECT_EQ(central[0], central[1]);
}

TEST(Mirrored, ReplicasHoldTheSameBitsAfterEveryStep) {
  run_ranks(1, "native", [](Context& context) {
    const auto strategy = all_strategies().make("mirrored", context, {{"replicas", "3"}});
    auto training = strategy->prepare({.model = [] { return small_model(); }, .optimizer = adamw()});
    const Digits data(64);
    for (std::int64_t step = 0; step < 20; ++step) {
      training->train_step(
          std::vector<rondo::Batch>{data.get(std::vector<std::int64_t>{step, step + 1, step + 7, step + 9})},
          {.step = step, .clip_norm = 0.1});
    }
    const ReplicaValue weights =
        strategy->run([&](int) { return training->model().module->parameters()[2].detach().clone(); });
    EXPECT_TRUE(torch::equal(weights.tensors()[0], weights.tensors()[1]));
    EXPECT_TRUE(torch::equal(weights.tensors()[0], weights.tensors()[2]));
  });
}

TEST(Mirrored, BuffersAreMeansOfReplicasWhenRead) {
  const auto with_norm = [] { return as_model(std::make_shared<torch::nn::BatchNorm1dImpl>(8)); };
  run_ranks(1, "native", [&](Context& context) {
    const auto strategy = all_strategies().make("mirrored", context, {{"replicas", "2"}});
    auto training =
        strategy->prepare({.model = with_norm,
                           .loss = [](const at::Tensor& output, const at::Tensor&) { return output.mean(); },
                           .optimizer = adamw()});
    const Digits data(6);
    const rondo::Batch batch = data.get(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
    training->train_step(std::vector<rondo::Batch>{batch}, {});
    training->prepared().parts().flush();
    const at::Tensor expected =
        0.1 * (batch.input().narrow(0, 0, 3).mean(0) + batch.input().narrow(0, 3, 3).mean(0)) / 2;
    const ReplicaValue means =
        strategy->run([&](int) { return training->model().module->named_buffers()["running_mean"].clone(); });
    EXPECT_TRUE(torch::allclose(means.tensors()[0], expected, 1e-5, 1e-6));
    EXPECT_TRUE(torch::equal(means.tensors()[0], means.tensors()[1]));
    EXPECT_EQ(training->model().module->named_buffers()["num_batches_tracked"].item<std::int64_t>(), 1);
  });
}

// Numbers of samples that the gradients' dtype cannot represent, or not exactly.
TEST(MultiWorkerMirrored, HalfPrecisionGradientsAreMeansOverSamples) {
  struct Case {
    at::ScalarType dtype;
    std::array<double, 2> samples;
    std::array<double, 2> gradients;
    double mean;
  };
  for (const Case& each :
       {Case{at::kHalf, {70000, 140000}, {1, 2}, 5.0 / 3}, Case{at::kHalf, {8192, 8192}, {100, 100}, 100},
        Case{at::kBFloat16, {1001, 1001}, {1, 1}, 1},
        Case{at::kFloat, {0, 8}, {std::numeric_limits<double>::infinity(), 2}, 2}}) {
    for (const bool ring : {false, true}) {
      run_ranks(2, "native", [&](Context& context) {
        const auto rank = static_cast<std::size_t>(context.rank());
        torch::nn::Linear model(4, 4);
        model->to(each.dtype);
        for (at::Tensor& parameter : model->parameters())
          parameter.mutable_grad() = at::full_like(parameter, each.gradients[rank]);
        WorkerExchange exchange(context.world(), *model, {.ring = ring});
        double samples = each.samples[rank];
        StepTotals totals;
        exchange.combine(samples, totals);
        EXPECT_EQ(samples, each.samples[0] + each.samples[1]);
        for (const at::Tensor& parameter : model->parameters()) {
          const at::Tensor gradient = parameter.grad().to(at::kDouble);
          EXPECT_LT((gradient - each.mean).abs().max().item<double>(), 1e-3 * each.mean)
              << each.dtype << " of " << each.samples[rank] << " samples";
        }
      });
    }
  }
}

TEST(Mirrored, SparseEmbeddingsTrain) {
  std::mutex drawing;  // ranks are threads and draw from one generator
  const auto embedding = [&drawing](bool sparse) {
    return [sparse, &drawing] {
      const std::lock_guard lock(drawing);
      torch::manual_seed(3);
      auto module = std::make_shared<torch::nn::SequentialImpl>(
          torch::nn::Embedding(torch::nn::EmbeddingOptions(20, 4).sparse(sparse)), torch::nn::Flatten(),
          torch::nn::Linear(8, 3));
      Model model;
      model.module = module;
      model.config = nlohmann::json::object();
      model.forward = [raw = module.get()](const at::Tensor& input) { return raw->forward(input); };
      return model;
    };
  };
  const auto data = std::make_shared<Rows>(torch::randint(20, {30, 2}, torch::kLong),
                                           torch::randint(3, {30}, torch::kLong), 3);
  double clip_norm = 0;
  const auto losses = [&](const std::string& name, const OptionValues& options, bool sparse,
                          std::int64_t batch, int ranks = 1) {
    std::vector<double> result;
    run_ranks(ranks, "native", [&](Context& context) {
      const auto strategy = all_strategies().make(name, context, options);
      Trainer trainer(*strategy, embedding(sparse));
      trainer.compile([](torch::nn::Module& module) {
        return make_optimizer({.name = "sgd", .learning_rate = 0.5}, module);
      });
      const auto recorder = std::make_shared<Recorder>();
      trainer.fit(
          data,
          {.steps = 10, .batch_size = batch, .seed = 2, .clip_norm = clip_norm, .callbacks = {recorder}});
      if (context.rank() == 0) result = recorder->losses();
    });
    return result;
  };
  std::vector<double> unclipped;
  for (const double norm : {0.0, 0.05}) {
    clip_norm = norm;
    const std::vector<double> expected = losses("one_device", {}, false, 12);
    if (norm == 0) unclipped = expected;
    const auto expect_near = [&](const std::string& name, const std::vector<double>& sparse) {
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(sparse[i], expected[i], 1e-5) << name << ", step " << i << ", clipped to " << norm;
    };
    expect_near("one_device", losses("one_device", {}, true, 12));
    for (const char* name : {"mirrored", "central_storage", "data_parallel"})
      expect_near(name, losses(name, {{"replicas", "2"}}, true, 6));
    for (const auto& [name, options] : std::map<std::string, OptionValues>{
             {"ddp", {}}, {"tpu", {}}, {"multi_worker_mirrored", {{"replicas", "2"}}}})
      expect_near(name, losses(name, options, true, options.empty() ? 6 : 3, 2));
    if (norm > 0) {
      EXPECT_GT(std::abs(expected.back() - unclipped.back()), 1e-3) << "clipping has an effect";
    }
  }
}

TEST(Mirrored, AnErrorOfAReplicaNamesIt) {
  run_ranks(1, "native", [](Context& context) {
    const auto strategy = all_strategies().make("mirrored", context, {{"replicas", "2"}});
    auto training =
        strategy->prepare({.model = [] { return small_model(); },
                           .loss = [](const at::Tensor& output, const at::Tensor& target) -> at::Tensor {
                             if (target[0].item<std::int64_t>() == 7) throw DataError("class 7 came up");
                             return output.sum();
                           },
                           .optimizer = adamw()});
    rondo::Batch batch;
    batch.samples = 4;
    batch.inputs = {torch::randn({4, 8})};
    batch.targets = {torch::tensor({1, 1, 7, 1})};
    try {
      training->train_step(std::vector<rondo::Batch>{batch}, {});
      FAIL() << "nothing was thrown";
    } catch (const DataError& error) {
      expect_facts(error.what(), {"replica 1 of 2", "class 7"});
    }
    // Training continues afterwards.
    batch.targets = {torch::tensor({1, 1, 1, 1})};
    training->train_step(std::vector<rondo::Batch>{batch}, {});
  });
}

TEST(Mirrored, RefusesWhatCannotBe) {
  const auto refused = [](int ranks, const std::string& name, const OptionValues& options) {
    std::string message = "nothing was refused";
    run_ranks(ranks, "native", [&](Context& context) {
      try {
        all_strategies().make(name, context, options);
      } catch (const UsageError& error) {
        if (context.rank() == 0) message = error.what();
      }
    });
    return message;
  };
  expect_facts(refused(1, "mirrored", {{"replicas", "0"}}), {"--replicas 0", "above 0"});
  expect_facts(refused(1, "mirrored", {{"devices", "cpu,gpu"}}), {"gpu", "cpu, cuda or cuda:N"});
  expect_facts(refused(1, "mirrored", {{"devices", "cuda:1,cuda:1"}}), {"cuda:1", "twice"});
  expect_facts(refused(1, "mirrored", {{"devices", "cpu,cpu"}, {"replicas", "3"}}), {"--replicas 3", "2"});
  expect_facts(refused(1, "mirrored", {{"cross-device-ops", "ring"}}), {"ring", "hierarchical_copy", "nccl"});
  expect_facts(refused(1, "mirrored", {{"mirrored-num-packs", "-1"}}), {"mirrored-num-packs -1"});
  expect_facts(refused(2, "mirrored", {{"replicas", "2"}}), {"mirrored", "2", "multi_worker_mirrored"});
  expect_facts(refused(2, "central_storage", {{"replicas", "2"}}), {"central_storage", "2"});
  expect_facts(refused(1, "central_storage", {{"devices", "cpu,cuda:0"}}), {"central_storage", "mirrored"});
  expect_facts(refused(1, "multi_worker_mirrored", {{"replicas", "2"}, {"codec", "int7"}}), {"int7", "int8"});
  expect_facts(refused(1, "multi_worker_mirrored", {{"replicas", "2"}, {"bucket-size", "1MiB"}}),
               {"--bucket-size", "2"});
  expect_facts(refused(1, "multi_worker_mirrored",
                       {{"replicas", "2"}, {"codec", "int8"}, {"mwm-implementation", "ring"}}),
               {"--codec int8", "mwm-implementation ring"});
  run_ranks(1, "native", [](Context& context) {
    const auto strategy = all_strategies().make("mirrored", context, {{"replicas", "2"}});
    try {
      Trainer trainer(*strategy, small_model());
      FAIL() << "nothing was refused";
    } catch (const UsageError& error) {
      expect_facts(error.what(), {"several copies", "function"});
    }
  });
}

}  // namespace
}  // namespace rondo::testing::replicas_test
