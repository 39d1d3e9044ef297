// fully_shard(): a loop of forward, backward and step has the same result as strategies zero1 to zero3 bit
// for bit, and as one process. Mistakes are named.
#include "rondo/parallel/sharded/fully_shard.h"

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <optional>
#include <tuple>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "tests/parallel/ranks.h"
#include "tests/parallel/sharded/layers.h"

namespace rondo::fully_shard_test {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): the oracle of sharded strategies
using testing::Batch;

constexpr std::int64_t kSamples = 12;  // number in a joint batch

std::vector<at::Tensor> full_parameters(FullyShardedModel& fsdp, const Layers& model,
                                        const Context& context) {
  fsdp.unshard();
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : model->parameters()) result.push_back(parameter.detach().clone());
  barrier(context.world());
  return result;
}

// A sharded model with rank 0's weights, and the optimizer of train_alone().
struct Sharded {
  Sharded(const Context& of_ranks, const FullyShardOptions& options)
      : context(of_ranks),
        fsdp(fully_shard(filled(of_ranks), options)),
        optimizer(make_adamw(fsdp.module())) {}
  Layers filled(const Context& of_ranks) {
    if (of_ranks.rank() > 0) fill_parameters(*model, 99);
    return model;
  }
  FullyShardedModel fully_shard(const Layers& layers, const FullyShardOptions& options) const {
    return rondo::fully_shard(layers, context, options);
  }
  at::Tensor loss(const Batch& batch) { return mean_loss(fsdp.forward(model, batch.input), batch); }
  void step(int number, double clip_norm = 0) {
    optimizer->zero_grad();
    loss(my_rows(joint_batch(kSamples, static_cast<std::uint64_t>(number)), context.world())).backward();
    if (clip_norm > 0) fsdp.clip_grad_norm_(clip_norm);
    fsdp.step(*optimizer);
  }
  std::vector<at::Tensor> weights() { return full_parameters(fsdp, model, context); }

  const Context& context;
  Layers model;
  FullyShardedModel fsdp;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

struct Way {
  std::string strategy;
  FullyShardOptions options;
  int ranks;
};

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const int ranks : {1, 2, 4}) {
    for (const int stage : {1, 2, 3}) all.push_back({str("zero", stage), {.zero_stage = stage}, ranks});
  }
  all.push_back({"hsdp", {.shard_ranks = 2}, 4});
  return all;
}

class FullyShard : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Engines, FullyShard, ::testing::ValuesIn(engines()),
                         [](const auto& engine) { return engine.param; });

TEST_P(FullyShard, EqualsStrategyAndOneProcessBitForBit) {
  const TrainingPlan plan{.steps = 4, .clip_norm = 0.5, .gradients_are_read = true, .samples = kSamples};
  const std::vector<at::Tensor> alone = train_alone(plan);
  for (const Way& way : ways()) {
    SCOPED_TRACE(str(way.strategy, " on ", way.ranks));
    run_ranks(way.ranks, GetParam(), [&](Context& context) {
      ShardedOptions options;
      options.shard_ranks = way.options.shard_ranks;
      options.find_unused_parameters = true;
      const std::vector<at::Tensor> expected = train_on_ranks(context, way.strategy, options, plan);
      FullyShardOptions own = way.options;
      own.find_unused_parameters = true;
      Sharded sharded(context, own);
      for (int step = 0; step < plan.steps; ++step) sharded.step(step, plan.clip_norm);
      const std::vector<at::Tensor> weights = sharded.weights();
      EXPECT_EQ(largest_difference(weights, expected), 0) << context.rank();
      EXPECT_LT(largest_difference(weights, alone), 1e-10) << context.rank();
    });
  }
}

TEST_P(FullyShard, AccumulatesInNoSync) {
  const std::vector<at::Tensor> alone = train_alone({.steps = 3, .samples = kSamples});
  run_ranks(2, GetParam(), [&](Context& context) {
    Sharded sharded(context, {.find_unused_parameters = true});
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Batch mine = my_rows(joint_batch(kSamples, step), context.world());
      const std::int64_t part = mine.input.size(0) / 3;
      sharded.optimizer->zero_grad();
      for (int pass = 0; pass < 3; ++pass) {
        std::optional<LocalPasses> local;
        if (pass < 2) local.emplace(sharded.fsdp.no_sync());
        (sharded.loss(rows(mine, pass * part, part)) / 3).backward();
      }
      sharded.fsdp.step(*sharded.optimizer);
    }
    EXPECT_LT(largest_difference(sharded.weights(), alone), 1e-10) << context.rank();
  });
}

TEST_P(FullyShard, WeighsRanksByTheirSamples) {
  const std::vector<at::Tensor> alone = train_alone({.steps = 3, .samples = kSamples});
  run_ranks(2, GetParam(), [&](Context& context) {
    Sharded sharded(context, {.find_unused_parameters = true});
    const std::int64_t first = context.rank() == 0 ? 0 : 4, count = context.rank() == 0 ? 4 : 8;
    for (std::uint64_t step = 0; step < 3; ++step) {
      sharded.optimizer->zero_grad();
      sharded.fsdp.set_local_samples(count);
      sharded.loss(rows(joint_batch(kSamples, step), first, count)).backward();
      sharded.fsdp.step(*sharded.optimizer);
    }
    EXPECT_LT(largest_difference(sharded.weights(), alone), 1e-10) << context.rank();
  });
}

// Evaluations between steps see the weights of the last step, and do not change them.
TEST_P(FullyShard, EvaluatesBetweenSteps) {
  const TrainingPlan plan{.steps = 3, .samples = kSamples};
  const std::vector<at::Tensor> alone = train_alone(plan);
  run_ranks(2, GetParam(), [&](Context& context) {
    Sharded sharded(context, {.find_unused_parameters = true});
    const Batch batch = joint_batch(kSamples, 7);
    for (int step = 0; step < plan.steps; ++step) {
      sharded.step(step);
      const at::NoGradGuard no_grad;
      const at::Tensor together = sharded.fsdp.forward(sharded.model, batch.input);
      sharded.fsdp.unshard();
      // Only rank 0 evaluates.
      at::Tensor own = together;
      if (context.rank() == 0) own = sharded.fsdp.forward(sharded.model, batch.input);
      EXPECT_TRUE(torch::equal(own, together));
      barrier(context.world());
    }
    EXPECT_LT(largest_difference(sharded.weights(), alone), 1e-10) << context.rank();
  });
}

TEST_P(FullyShard, GoesOnFromItsStateDicts) {
  run_ranks(2, GetParam(), [&](Context& context) {
    const FullyShardOptions options{.find_unused_parameters = true};
    Sharded first(context, options);
    for (int step = 0; step < 2; ++step) first.step(step);
    Sharded second(context, options);
    second.step(9);
    std::vector<ModelTensor> state = first.fsdp.state_dict();
    for (ModelTensor& tensor : state) tensor.tensor = tensor.tensor.clone();
    second.fsdp.load_state_dict(state);
    second.fsdp.load_optimizer_state_dict(*second.optimizer,
                                          first.fsdp.optimizer_state_dict(*first.optimizer));
    for (int step = 2; step < 4; ++step) {
      first.step(step);
      second.step(step);
    }
    EXPECT_EQ(largest_difference(first.weights(), second.weights()), 0) << context.rank();
    {
      const SummonFullParams full = first.fsdp.summon_full_params();
      const at::NoGradGuard no_grad;
      first.model->input->weight.zero_();
      full.write_back();
    }
    EXPECT_EQ(first.fsdp.state_dict().front().tensor.abs().sum().item<double>(), 0);
    barrier(context.world());
  });
}

TEST_P(FullyShard, NamesMistakesOfTheLoop) {
  run_ranks(2, GetParam(), [&](Context& context) {
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(stage);
      const FullyShardOptions options{.zero_stage = stage, .find_unused_parameters = true};
      const Batch batch = my_rows(joint_batch(kSamples, 0), context.world());
      {
        Layers model;
        const auto early = make_adamw(*model);
        FullyShardedModel fsdp = fully_shard(model, context, options);
        mean_loss(fsdp.forward(model, batch.input), batch).backward();
        expect_facts(message_of<UsageError>([&] { fsdp.step(*early); }),
                     {"input.weight", "after prepare() or fully_shard()", "parameters()"});
      }
      Sharded sharded(context, options);
      expect_facts(message_of<UsageError>([&] { fully_shard(sharded.model, context, options); }),
                   {"parameter '", "prepared already"});
      expect_facts(message_of<UsageError>([&] { sharded.fsdp.step(*sharded.optimizer); }),
                   {"step()", "forward(", "backward()"});
      expect_facts(message_of<UsageError>([&] { sharded.fsdp.clip_grad_norm_(1); }), {"backward()"});
      {
        const LocalPasses local = sharded.fsdp.no_sync();
        sharded.loss(batch).backward();
      }
      expect_facts(message_of<UsageError>([&] { sharded.fsdp.step(*sharded.optimizer); }), {"no_sync()"});
      sharded.step(0);
      sharded.loss(batch).backward();
      sharded.optimizer->step();
      expect_facts(message_of<UsageError>([&] { sharded.loss(batch); }),
                   {"not optimizer.step()", "no_sync()", "step(optimizer)"});
      sharded.fsdp.step(*sharded.optimizer);
      barrier(context.world());
    }
  });
}

// Covers a holder, a pointer, the module itself, and a function that calls it; outputs of several tensors.
TEST(FullyShardArguments, ModelsOfEveryForm) {
  run_ranks(1, "native", [](Context& context) {
    torch::nn::Sequential model(torch::nn::Linear(3, 2), torch::nn::Tanh());
    FullyShardedModel fsdp = fully_shard(model, context);
    torch::optim::AdamW optimizer(fsdp.parameters(), 1e-2);
    const at::Tensor input = at::ones({4, 3});
    at::Tensor before = model->forward(input).detach();
    const auto step = [&](const at::Tensor& output) {
      output.sum().backward();
      fsdp.step(optimizer);
      optimizer.zero_grad();
      const at::NoGradGuard no_grad;
      const at::Tensor after = fsdp.forward(model, input);
      EXPECT_FALSE(at::equal(after, before));
      before = after;
    };
    step(fsdp.forward(model, input));
    step(fsdp.forward(model.ptr(), input));
    step(fsdp.forward(*model, input));
    const auto twice = [&](const at::Tensor& x) { return std::make_tuple(model->forward(x), x); };
    step(std::get<0>(fsdp.forward(twice, input)));
  });
}

TEST(FullyShardArguments, AreChecked) {
  run_ranks(1, "native", [](Context& context) {
    const auto message = [&](std::shared_ptr<torch::nn::Module> module, const FullyShardOptions& options) {
      return message_of<UsageError>([&] { fully_shard(std::move(module), context, options); });
    };
    const Layers model;
    expect_facts(message(std::make_shared<torch::nn::DropoutImpl>(), {}), {"DropoutImpl", "no parameters"});
    expect_facts(message(nullptr, {}), {"null"});
    expect_facts(message(model.ptr(), {.zero_stage = 4}), {"zero_stage = 4", "1, 2 and 3"});
    expect_facts(message(model.ptr(), {.zero_stage = 2, .shard_ranks = 1}),
                 {"shard_ranks", "zero_stage = 3"});
    expect_facts(message(model.ptr(), {.zero_stage = 1, .reshard_after_forward = false}),
                 {"reshard_after_forward", "zero_stage = 3"});
    expect_facts(message(model.ptr(), {.reshard_after_forward = -2}), {"reshard_after_forward = -2"});
    expect_facts(message(model.ptr(), {.shard_ranks = 3}), {"shard-ranks 3", "1 ranks"});
    expect_facts(message(model.ptr(), {.codec = "power_sgd"}), {"power_sgd", "int8"});
    FullyShardedModel fsdp = fully_shard(model, context, {.reshard_after_forward = 1});
    expect_facts(message(model.ptr(), {}), {"prepared already"});
  });
}

TEST(FullyShardArguments, RanksThatShardDifferentlyAreNamed) {
  run_ranks(2, "native", [](Context& context) {
    const auto message = [&](const FullyShardOptions& options) {
      const Layers model;
      return message_of<MismatchError>([&] { fully_shard(model, context, options); });
    };
    const bool first = context.rank() == 0;
    expect_facts(message({.zero_stage = first ? 1 : 2}), {"= zero1", "= zero2"});
    expect_facts(message({.codec = first ? "none" : "int8"}), {"codec = none", "codec = int8"});
  });
}

}  // namespace
}  // namespace rondo::fully_shard_test
