// Loops like those of public libtorch programs, under each strategy: the result equals one process, or an
// error names the call to make.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/ddp.h"
#include "rondo/strategy/summon_full_params.h"
#include "tests/parallel/sharded/layers.h"

namespace rondo::testing::public_loops_test {
namespace {

struct Place {
  std::string strategy;
  std::vector<int> hosts;  // host of each rank
  int ranks() const { return static_cast<int>(hosts.size()); }
  bool spans_hosts() const { return hosts.back() > 0; }
  std::string engine() const { return spans_hosts() ? "hierarchical(native, gloo)" : "native"; }
};

std::ostream& operator<<(std::ostream& out, const Place& place) {
  return out << place.strategy << (place.spans_hosts() ? " between hosts" : " on one host");
}

std::vector<Place> places() {
  std::vector<Place> all;
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"}) {
    all.push_back({strategy, {0, 0}});
    all.push_back({strategy, {0, 1}});
  }
  all.push_back({"zero3", {0}});
  all.push_back({"one_device", {0}});
  return all;
}

class PublicLoops : public ::testing::TestWithParam<Place> {
 protected:
  // Calls `body` on every rank.
  void run(const std::function<void(Context&)>& body) {
    run_ranks(GetParam().ranks(), GetParam().engine(), body, std::chrono::seconds(60), GetParam().hosts);
  }
  static bool is_ddp() { return GetParam().strategy == "ddp" || GetParam().strategy == "one_device"; }
  static bool keeps_whole_model() { return is_ddp() || GetParam().ranks() == 1; }
};

INSTANTIATE_TEST_SUITE_P(Places, PublicLoops, ::testing::ValuesIn(places()),
                         [](const ::testing::TestParamInfo<Place>& info) {
                           return info.param.strategy + "_" + std::to_string(info.param.ranks()) +
                                  (info.param.spans_hosts() ? "_hosts" : "_ranks");
                         });

// Two units between two layers of the root; smooth, so that second derivatives exist.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::uint64_t seed, std::int64_t inputs = 6, std::int64_t outputs = 4)
      : input(register_module("input", torch::nn::Linear(inputs, 7))),
        first(register_module("first", Unit<Residual>(7))),
        second(register_module("second", Unit<Residual>(7))),
        output(register_module("output", torch::nn::Linear(7, outputs))) {
    to(at::kDouble);
    fill_parameters(*this, seed);
  }
  at::Tensor forward(const at::Tensor& x) { return output(second(first(torch::tanh(input(x))))); }
  torch::nn::Linear input;
  Unit<Residual> first, second;
  torch::nn::Linear output;
};
TORCH_MODULE(Net);

// A model under a strategy, or without one (`context` null), with one loop for both.
struct Trained {
  Trained(Context* context, const std::string& strategy_name, Net net, const ShardedOptions& options = {})
      : model(std::move(net)) {
    if (context == nullptr) return;
    strategy = make_strategy(strategy_name, *context, options);
    prepared = strategy->prepare(model.ptr());
  }
  torch::nn::Module& module() {
    return prepared ? prepared->module() : static_cast<torch::nn::Module&>(*model);
  }
  void begin(const LocalBatch& batch) const {
    if (prepared) prepared->begin_step(batch);
  }
  void finish() const {
    if (prepared) prepared->finish_backward();
  }
  void step(torch::optim::Optimizer& optimizer) const {
    if (prepared) return prepared->step(optimizer);
    optimizer.step();
  }
  std::vector<at::Tensor> weights(Context* context) const {
    if (prepared) prepared->unshard();
    std::vector<at::Tensor> result;
    for (const at::Tensor& parameter : model->parameters()) result.push_back(parameter.detach().clone());
    if (context != nullptr) barrier(context->world());
    return result;
  }
  Net model;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<PreparedModel> prepared;
};

Batch part_of(const Batch& joint, Context* context) {
  return context == nullptr ? joint : my_rows(joint, context->world());
}

// Handling of the discriminator's gradients in a generator step.
enum class Unwanted { discarded, cleared, cleared_to_zero, cleared_by_the_model };

std::vector<at::Tensor> train_gan(Context* context, const std::string& strategy, Unwanted unwanted,
                                  bool finishes) {
  Trained generator(context, strategy, Net(11));
  Trained discriminator(context, strategy, Net(12, /*inputs=*/4, /*outputs=*/1));
  torch::optim::Adam generator_optimizer(generator.module().parameters(), 1e-2);
  torch::optim::Adam discriminator_optimizer(discriminator.module().parameters(), 1e-2);
  const auto zero_grad = [&](Trained& trained, torch::optim::Optimizer& optimizer) {
    if (unwanted == Unwanted::cleared_by_the_model) return trained.model->zero_grad();
    optimizer.zero_grad(/*set_to_none=*/unwanted != Unwanted::cleared_to_zero);
  };
  for (std::uint64_t step = 0; step < 4; ++step) {
    const Batch batch = part_of(joint_batch(8, step), context);
    const std::int64_t samples = batch.input.size(0);
    at::Tensor fake;
    {
      const at::NoGradGuard no_grad;
      generator.begin({.samples = samples, .discard_gradients = true});
      fake = generator.model(batch.input);
      generator.finish();
    }
    zero_grad(discriminator, discriminator_optimizer);
    discriminator.begin({.samples = samples});
    const at::Tensor verdicts = discriminator.model(torch::cat({batch.target, fake}));
    const at::Tensor loss = torch::softplus(-verdicts.slice(0, 0, samples)).mean() +
                            torch::softplus(verdicts.slice(0, samples)).mean();
    loss.backward();
    discriminator.finish();
    discriminator.step(discriminator_optimizer);

    zero_grad(generator, generator_optimizer);
    generator.begin({.samples = samples});
    discriminator.begin(
        {.samples = samples, .synchronise = false, .discard_gradients = unwanted == Unwanted::discarded});
    torch::softplus(-discriminator.model(generator.model(batch.input))).mean().backward();
    if (finishes) discriminator.finish();
    generator.finish();
    generator.step(generator_optimizer);
  }
  std::vector<at::Tensor> weights = generator.weights(context);
  for (const at::Tensor& weight : discriminator.weights(context)) weights.push_back(weight);
  return weights;
}

TEST_P(PublicLoops, AGanTrainsAsOneProcess) {
  const std::vector<at::Tensor> expected = train_gan(nullptr, "", Unwanted::cleared, true);
  run([&](Context& context) {
    for (const Unwanted unwanted : {Unwanted::discarded, Unwanted::cleared, Unwanted::cleared_to_zero,
                                    Unwanted::cleared_by_the_model}) {
      for (const bool finishes : {true, false}) {
        const auto weights = train_gan(&context, GetParam().strategy, unwanted, finishes);
        EXPECT_LT(largest_difference(weights, expected), 1e-10)
            << static_cast<int>(unwanted) << finishes << " rank " << context.rank();
      }
    }
  });
}

// A pass that discards its gradients keeps those of earlier passes.
TEST_P(PublicLoops, APassThatDiscardsLeavesWhatWasThere) {
  const auto train = [&](Context* context, bool with_one_between) {
    Trained trained(context, GetParam().strategy, Net(5));
    torch::optim::SGD optimizer(trained.module().parameters(), 0.1);
    const std::int64_t ranks = context == nullptr ? 1 : context->world_size();
    for (std::uint64_t pass = 0; pass < 2; ++pass) {
      const Batch batch = part_of(joint_batch(8, pass), context);
      trained.begin({.samples = 16 / ranks, .synchronise = pass == 1});
      (mean_loss(trained.model(batch.input), batch) / 2).backward();
      if (!with_one_between || pass == 1) continue;
      const at::Tensor input = batch.input.clone().set_requires_grad(true);
      trained.begin({.samples = 8, .discard_gradients = true});
      mean_loss(trained.model(input), batch).backward();
      EXPECT_TRUE(input.grad().defined());
    }
    trained.finish();
    trained.step(optimizer);
    return trained.weights(context);
  };
  const std::vector<at::Tensor> expected = train(nullptr, false);
  run([&](Context& context) {
    EXPECT_LT(largest_difference(train(&context, true), expected), kTolerance) << context.rank();
  });
}

// A pass that discards is not part of a step, even without its finish_backward().
TEST_P(PublicLoops, DiscardingPassIsAllowedBetweenCalls) {
  const auto train = [&](Context* context, bool with_ones_between, bool finishes) {
    Trained trained(context, GetParam().strategy, Net(5));
    torch::optim::SGD optimizer(trained.module().parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    const auto discard = [&](const Batch& batch) {
      if (!with_ones_between) return;
      trained.begin({.samples = batch.input.size(0), .discard_gradients = true});
      const at::Tensor input = batch.input.clone().set_requires_grad(true);
      trained.model(input).sum().backward();
      if (finishes) trained.finish();
    };
    // If gradients are not cleared, the next ones replace those of the step.
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Batch batch = part_of(joint_batch(8, step), context);
      if (context == nullptr || is_ddp() || keeps_whole_model()) optimizer.zero_grad();
      discard(batch);
      trained.begin({.samples = batch.input.size(0)});
      mean_loss(trained.model(batch.input), batch).backward();
      trained.finish();
      discard(batch);
      trained.step(optimizer);
      discard(batch);
    }
    return trained.weights(context);
  };
  const std::vector<at::Tensor> expected = train(nullptr, false, false);
  run([&](Context& context) {
    for (const bool finishes : {true, false})
      EXPECT_LT(largest_difference(train(&context, true, finishes), expected), kTolerance) << context.rank();
  });
}

// Time at which a loop clears gradients that no step has used.
enum class Clears { nothing, before_the_window, within_the_window };

std::vector<at::Tensor> train_windows(Context* context, const std::string& strategy,
                                      const ShardedOptions& options, Clears clears, bool finishes) {
  Trained trained(context, strategy, Net(5), options);
  torch::optim::SGD optimizer(trained.module().parameters(), 0.1);
  for (std::uint64_t window = 0; window < 3; ++window) {
    optimizer.zero_grad();
    for (std::uint64_t pass = 0; pass < 4; ++pass) {
      const bool combines = pass == 0 || pass == 3;  // the first pass's gradients stay for the window
      if (pass == 1 && clears == Clears::before_the_window) optimizer.zero_grad(/*set_to_none=*/window == 0);
      if (pass == 2 && clears == Clears::within_the_window) optimizer.zero_grad(/*set_to_none=*/window == 0);
      const Batch batch = part_of(joint_batch(8, 10 * window + pass), context);
      trained.begin({.samples = batch.input.size(0), .synchronise = combines});
      mean_loss(trained.model(batch.input), batch).backward();
      if (finishes || combines) trained.finish();
    }
    trained.step(optimizer);
  }
  return trained.weights(context);
}

TEST_P(PublicLoops, UnusedGradientsAddUpThroughAWindow) {
  for (const Clears clears : {Clears::nothing, Clears::before_the_window, Clears::within_the_window}) {
    const std::vector<at::Tensor> expected = train_windows(nullptr, "", {}, clears, true);
    run([&](Context& context) {
      for (const bool reduces : {false, true}) {
        ShardedOptions options;
        options.reduce_every_pass = reduces;
        for (const bool finishes : {true, false}) {
          const auto weights = train_windows(&context, GetParam().strategy, options, clears, finishes);
          EXPECT_LT(largest_difference(weights, expected), kTolerance)
              << static_cast<int>(clears) << reduces << finishes << " rank " << context.rank();
        }
      }
    });
  }
}

TEST_P(PublicLoops, NamesGradientsClearedTooLate) {
  if (is_ddp() || keeps_whole_model()) return;  // the optimizer has the gradients' own tensors
  run([&](Context& context) {
    Trained trained(&context, GetParam().strategy, Net(5));
    torch::optim::SGD optimizer(trained.module().parameters(), 0.1);
    const Batch batch = part_of(joint_batch(8, 0), &context);
    trained.begin({.samples = 8, .synchronise = false});
    mean_loss(trained.model(batch.input), batch).backward();
    trained.begin({.samples = 8});
    const at::Tensor loss = mean_loss(trained.model(batch.input), batch);
    optimizer.zero_grad();
    expect_facts(message_of<UsageError>([&] { loss.backward(); }), {"zero_grad()", "before begin_step()"});
    barrier(context.world());
  });
}

std::vector<at::Tensor> train_lbfgs(Context* context, const std::string& strategy, double* last_loss) {
  Trained trained(context, strategy, Net(3));
  torch::optim::LBFGS optimizer(
      trained.module().parameters(),
      torch::optim::LBFGSOptions(1.0).max_iter(6).line_search_fn("strong_wolfe").tolerance_change(1e-12));
  const Batch batch = part_of(joint_batch(12, 0), context);
  for (int step = 0; step < 3; ++step) {
    const auto closure = [&] {
      optimizer.zero_grad();
      trained.begin({.samples = batch.input.size(0), .gradients_are_read = false});
      const at::Tensor loss = mean_loss(trained.model(batch.input), batch);
      loss.backward();
      trained.finish();
      return loss;
    };
    const at::Tensor loss =
        trained.prepared ? trained.prepared->step(optimizer, closure) : optimizer.step(closure);
    *last_loss = loss.item<double>();
  }
  return trained.weights(context);
}

TEST_P(PublicLoops, LbfgsDecidesByTheLossOfTheGroup) {
  double expected_loss = 0;
  const std::vector<at::Tensor> expected = train_lbfgs(nullptr, "", &expected_loss);
  run([&](Context& context) {
    double loss = 0;
    if (!keeps_whole_model()) {
      expect_facts(message_of<UsageError>([&] { train_lbfgs(&context, GetParam().strategy, &loss); }),
                   {"LBFGS", "ddp"});
      barrier(context.world());
      return;
    }
    EXPECT_LT(largest_difference(train_lbfgs(&context, GetParam().strategy, &loss), expected), 1e-6);
    EXPECT_NEAR(loss, expected_loss, 1e-9);
  });
}

TEST_P(PublicLoops, ClosureOfAnotherOptimizerGivesMeanLoss) {
  const auto train = [&](Context* context, double* loss) {
    Trained trained(context, GetParam().strategy, Net(3));
    torch::optim::Adam optimizer(trained.module().parameters(), 1e-2);
    const Batch batch = part_of(joint_batch(12, 0), context);
    for (int step = 0; step < 3; ++step) {
      const auto closure = [&] {
        optimizer.zero_grad();
        trained.begin({.samples = batch.input.size(0)});
        const at::Tensor of_rank = mean_loss(trained.model(batch.input), batch);
        of_rank.backward();
        trained.finish();
        return of_rank;
      };
      *loss = (trained.prepared ? trained.prepared->step(optimizer, closure) : optimizer.step(closure))
                  .item<double>();
    }
    return trained.weights(context);
  };
  double expected_loss = 0;
  const std::vector<at::Tensor> expected = train(nullptr, &expected_loss);
  run([&](Context& context) {
    double loss = 0;
    EXPECT_LT(largest_difference(train(&context, &loss), expected), 1e-10);
    EXPECT_NEAR(loss, expected_loss, 1e-12);
  });
}

// Uses of gradients of the inputs in a loss.
enum class Derivative { penalty, residual, adversary };

at::Tensor loss_of_derivatives(Net& model, const Batch& batch, Derivative derivative) {
  at::Tensor input = batch.input.clone().set_requires_grad(true);
  const auto gradient = [&](const at::Tensor& of, bool again) {
    return torch::autograd::grad({of.sum()}, {input}, {}, /*retain_graph=*/true, /*create_graph=*/again)[0];
  };
  const at::Tensor output = model(input);
  if (derivative == Derivative::penalty)
    return mean_loss(output, batch) + (gradient(output, true).norm(2, 1) - 1).square().mean();
  if (derivative == Derivative::residual) {
    const at::Tensor first = gradient(output, true).slice(1, 0, 1);
    return (gradient(first, true).slice(1, 0, 1) + output).square().mean();
  }
  const at::Tensor moved = input.detach() + 0.1 * gradient(mean_loss(output, batch), false).sign();
  return mean_loss(model(moved), batch);
}

TEST_P(PublicLoops, GradientsOfInputsTrainAsOneProcess) {
  for (const Derivative derivative : {Derivative::penalty, Derivative::residual, Derivative::adversary}) {
    const auto train = [&](Context* context) {
      Trained trained(context, GetParam().strategy, Net(8));
      torch::optim::Adam optimizer(trained.module().parameters(), 1e-2);
      for (std::uint64_t step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        const Batch batch = part_of(joint_batch(8, step), context);
        trained.begin({.samples = batch.input.size(0), .gradients_are_read = step % 2 == 0});
        loss_of_derivatives(trained.model, batch, derivative).backward();
        trained.finish();
        trained.step(optimizer);
      }
      return trained.weights(context);
    };
    const std::vector<at::Tensor> expected = train(nullptr);
    run([&](Context& context) {
      EXPECT_LT(largest_difference(train(&context), expected), 1e-10)
          << static_cast<int>(derivative) << " rank " << context.rank();
    });
  }
}

TEST_P(PublicLoops, WeightDecayByDimensionsHitsSameParameters) {
  const auto train = [&](Context* context) {
    Trained trained(context, GetParam().strategy, Net(3));
    std::vector<at::Tensor> decayed, others;
    for (const at::Tensor& parameter : trained.module().parameters())
      (parameter.dim() >= 2 ? decayed : others).push_back(parameter);
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(decayed, std::make_unique<torch::optim::AdamWOptions>(
                                     torch::optim::AdamWOptions(1e-2).weight_decay(0.5)));
    groups.emplace_back(others, std::make_unique<torch::optim::AdamWOptions>(
                                    torch::optim::AdamWOptions(1e-2).weight_decay(0)));
    torch::optim::AdamW optimizer(groups, torch::optim::AdamWOptions(1e-2));
    for (std::uint64_t step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const Batch batch = part_of(joint_batch(8, step), context);
      trained.begin({.samples = batch.input.size(0)});
      mean_loss(trained.model(batch.input), batch).backward();
      trained.finish();
      trained.step(optimizer);
    }
    return trained.weights(context);
  };
  const std::vector<at::Tensor> expected = train(nullptr);
  run([&](Context& context) {
    EXPECT_LT(largest_difference(train(&context), expected), 1e-10) << context.rank();
  });
}

TEST_P(PublicLoops, SavingShardsOfAnOptimizerIsNamed) {
  run([&](Context& context) {
    Trained trained(&context, GetParam().strategy, Net(3));
    torch::optim::Adam optimizer(trained.module().parameters(), 1e-2);
    const Batch batch = part_of(joint_batch(8, 0), &context);
    trained.begin({.samples = batch.input.size(0)});
    mean_loss(trained.model(batch.input), batch).backward();
    trained.finish();
    trained.step(optimizer);
    std::stringstream file;
    const auto save = [&] { torch::save(optimizer, file); };
    if (keeps_whole_model()) {
      save();
    } else {
      expect_facts(message_of<UsageError>(save), {"torch::save", "rondo::save", "full_optimizer_state_dict"});
    }
    barrier(context.world());
  });
}

// torch's function gets shards, so every rank has another norm.
TEST_P(PublicLoops, NamesClippingByTheNormOfShards) {
  if (keeps_whole_model()) return;
  run([&](Context& context) {
    for (const bool clips : {true, false}) {
      Trained trained(&context, GetParam().strategy, Net(3));
      torch::optim::Adam optimizer(trained.module().parameters(), 1e-2);
      const auto train = [&] {
        for (std::uint64_t step = 0; step < 2; ++step) {
          optimizer.zero_grad();
          const Batch batch = part_of(joint_batch(8, step), &context);
          trained.begin({.samples = batch.input.size(0)});
          mean_loss(trained.model(batch.input), batch).backward();
          trained.finish();
          if (clips) torch::nn::utils::clip_grad_norm_(trained.module().parameters(), 1e-3);
          // Elementwise clipping, and one factor on all ranks, are both correct.
          if (!clips) torch::nn::utils::clip_grad_value_(trained.module().parameters(), 0.01);
          if (!clips) trained.prepared->clip_gradients(1e-4);
          trained.step(optimizer);
        }
      };
      if (clips) {
        expect_facts(message_of<MismatchError>(train), {"clip_grad_norm_", "prepared->clip_gradients"});
      } else {
        train();
      }
    }
    barrier(context.world());
  });
}

// An optimizer that updates rank 1's shards only after rank 0 has updated its own and may already read.
class LaterOnRankOne final : public torch::optim::Adam {
 public:
  LaterOnRankOne(std::vector<at::Tensor> parameters, int rank, std::atomic<int>& steps_of_rank_0)
      : Adam(std::move(parameters), 1e-2), rank_(rank), steps_of_rank_0_(steps_of_rank_0) {}
  at::Tensor step(LossClosure closure = nullptr) override {
    ++steps_;
    while (rank_ == 1 && steps_of_rank_0_ < steps_) std::this_thread::yield();
    at::Tensor loss = Adam::step(std::move(closure));
    if (rank_ == 0) steps_of_rank_0_ = steps_;
    return loss;
  }

 private:
  int rank_;
  int steps_ = 0;
  std::atomic<int>& steps_of_rank_0_;
};

// Runs on one host, where ranks write parameters that all ranks read.
TEST_P(PublicLoops, ValuesReadBetweenStepsAgreeOnRanks) {
  if (GetParam().spans_hosts()) return;  // parameters are not whole there
  std::atomic<int> steps_of_rank_0 = 0;
  run([&](Context& context) {
    Trained trained(&context, GetParam().strategy, Net(3));
    LaterOnRankOne optimizer(trained.module().parameters(), context.rank(), steps_of_rank_0);
    std::vector<at::Tensor> average;
    for (const at::Tensor& parameter : trained.model->parameters())
      average.push_back(parameter.detach().clone());
    const Batch unseen = joint_batch(5, 99);
    std::vector<at::Tensor> seen;
    for (std::uint64_t step = 0; step < 60; ++step) {
      optimizer.zero_grad();
      const Batch batch = part_of(joint_batch(8, step), &context);
      trained.begin({.samples = batch.input.size(0)});
      mean_loss(trained.model(batch.input), batch).backward();
      trained.finish();
      trained.step(optimizer);
      const at::NoGradGuard no_grad;
      const std::vector<at::Tensor> parameters = trained.model->parameters();
      for (std::size_t i = 0; i < average.size(); ++i) average[i].mul_(0.9).add_(parameters[i], 0.1);
      seen.push_back(trained.model(unseen.input));
    }
    for (const at::Tensor& value : average) seen.push_back(value.flatten());
    at::Tensor all = at::cat([&] {
      std::vector<at::Tensor> flat;
      for (const at::Tensor& value : seen) flat.push_back(value.flatten());
      return flat;
    }());
    const std::vector<at::Tensor> of_ranks = all_gather(all, context.world());
    for (const at::Tensor& other : of_ranks) EXPECT_TRUE(at::equal(other, of_ranks.front()));
  });
}

// Also covers gradients_are_read = false, with forward passes that all ranks make together.
TEST(BetweenSteps, ForwardPassesWaitForWritersOnOneHost) {
  std::atomic<int> steps_of_rank_0 = 0;
  run_ranks(2, "native", [&](Context& context) {
    Trained trained(&context, "zero3", Net(3));
    LaterOnRankOne optimizer(trained.module().parameters(), context.rank(), steps_of_rank_0);
    for (std::uint64_t step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      const Batch batch = part_of(joint_batch(8, step), &context);
      trained.begin({.samples = batch.input.size(0), .gradients_are_read = false});
      mean_loss(trained.model(batch.input), batch).backward();
      trained.finish();
      trained.step(optimizer);
      const at::NoGradGuard no_grad;
      const at::Tensor hidden = torch::ones({3, 7}, at::kDouble);
      const at::Tensor first = trained.model->second(hidden);
      std::this_thread::yield();
      EXPECT_TRUE(at::equal(first, trained.model->second(hidden)));
    }
    barrier(context.world());
  });
}

TEST(FrozenParametersTest, LetGradientsThroughAndComeBack) {
  Net model(3);
  model->output->bias.set_requires_grad(false);
  const at::Tensor input = torch::ones({2, 6}, at::kDouble).set_requires_grad(true);
  {
    const FrozenParameters frozen(*model);
    model(input).sum().backward();
  }
  EXPECT_TRUE(input.grad().defined());
  for (const auto& entry : model->named_parameters()) {
    EXPECT_FALSE(entry.value().grad().defined()) << entry.key();
    EXPECT_EQ(entry.value().requires_grad(), entry.key() != "output.bias") << entry.key();
  }
}

}  // namespace
}  // namespace rondo::testing::public_loops_test
