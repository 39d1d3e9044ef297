// Compares parameter_server with training in one process; workers and servers are threads.
#include "rondo/parallel/server/server_strategy.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <latch>
#include <limits>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/nn/optimizers/rule_optimizer.h"
#include "rondo/parallel/server/served_model.h"
#include "rondo/server/service.h"
#include "rondo/strategy/training.h"
#include "tests/errors.h"

namespace rondo::server_strategy_test {
namespace {

using control::JobSecret;
using testing::expect_facts;
using testing::message_of;
using Net = std::shared_ptr<torch::nn::SequentialImpl>;

constexpr int kSteps = 12;

// Servers as threads, and the options to connect to them.
class Servers {
 public:
  explicit Servers(int count = 1) {
    for (int i = 0; i < count; ++i) {
      services_.push_back(std::make_unique<server::Service>(server::ServiceOptions{.index = i}, secret));
      options.addresses.push_back(services_.back()->address());
      threads_.emplace_back([service = services_.back().get()](const std::stop_token& stop) {
        service->run([&] { return stop.stop_requested(); });
      });
    }
    options.timeout = std::chrono::seconds(60);
  }

  std::unique_ptr<ServerStrategy> strategy(std::uint32_t worker = 0) const {
    server::ClusterOptions own = options;
    own.worker = worker;
    return std::make_unique<ServerStrategy>(init({.init_method = "alone"}), own, secret);
  }

  JobSecret secret = JobSecret::make();
  server::ClusterOptions options;

 private:
  std::vector<std::unique_ptr<server::Service>> services_;
  std::vector<std::jthread> threads_;
};

Net make_net() {
  auto net = std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(6, 5), torch::nn::Tanh(),
                                                         torch::nn::Linear(5, 3));
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : net->parameters())
    parameter.copy_(torch::linspace(-1, 1, parameter.numel()).view(parameter.sizes()));
  return net;
}

ModelFactory model_of(const Net& net) {
  return only(Model{.module = net, .forward = [net](const at::Tensor& x) { return net->forward(x); }});
}

Batch batch_of(int step, std::int64_t first, std::int64_t samples) {
  const at::Tensor x = torch::sin(torch::arange(first * 6, (first + samples) * 6).to(torch::kFloat) + step);
  Batch batch;
  batch.inputs = {x.view({samples, 6})};
  batch.targets = {batch.inputs[0].narrow(1, 0, 3).argmax(1)};
  batch.samples = samples;
  return batch;
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(torch::nn::Module&)>;

template <class Optimizer>
MakeOptimizer with(auto options) {
  return [options](torch::nn::Module& module) {
    return std::make_unique<Optimizer>(module.parameters(), options);
  };
}

const std::map<std::string, MakeOptimizer> kOptimizers = {
    {"sgd", with<torch::optim::SGD>(torch::optim::SGDOptions(0.1))},
    {"momentum",
     with<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).dampening(0.3).weight_decay(0.01))},
    {"nesterov", with<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true))},
    {"adam", with<torch::optim::Adam>(torch::optim::AdamOptions(0.01).weight_decay(0.1))},
    {"adamw", with<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01).weight_decay(0.1))},
    {"adagrad", with<torch::optim::Adagrad>(
                    torch::optim::AdagradOptions(0.1).lr_decay(0.01).initial_accumulator_value(0.1))},
};

Net train_alone(const MakeOptimizer& make) {
  Net net = make_net();
  const auto optimizer = make(*net);
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = batch_of(step, 0, 8);
    optimizer->zero_grad();
    torch::nn::functional::cross_entropy(net->forward(batch.inputs[0]), batch.targets[0]).backward();
    optimizer->step();
  }
  return net;
}

void expect_equal(const torch::nn::Module& trained, const torch::nn::Module& expected, double tolerance) {
  const auto values = trained.parameters(), others = expected.parameters();
  ASSERT_EQ(values.size(), others.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_LE((values[i] - others[i]).abs().max().item<double>(), tolerance) << "parameter " << i;
}

TEST(ServerStrategy, WithOneWorkerIsTrainingInOneProcess) {
  for (const auto& [name, make] : kOptimizers) {
    SCOPED_TRACE(name);
    const Servers servers(2);
    const auto strategy = servers.strategy();
    const Net net = make_net();
    const auto training = strategy->prepare(Recipe{.model = model_of(net), .optimizer = make});
    for (int step = 0; step < kSteps; ++step) training->train_step(std::vector{batch_of(step, 0, 8)}, {});
    training->prepared().unshard();
    expect_equal(*net, *train_alone(make), 2e-6);
  }
}

// A worker that starts again goes on with the error of its codec, without which the same training ends
// differently.
TEST(ServerStrategy, SavesTheErrorFeedbackOfPushes) {
  std::vector<CommunicationState> saved;
  const auto train = [&](const Net& net, int first, int last, std::vector<CommunicationState> restored) {
    Servers servers(2);
    servers.options.codec = "top_k:0.2";
    const auto strategy = servers.strategy();
    const auto training =
        strategy->prepare(Recipe{.model = model_of(net), .optimizer = kOptimizers.at("sgd")});
    if (!restored.empty()) {
      EXPECT_EQ(training->prepared().restore_communication(restored), "");
    }
    for (int step = first; step < last; ++step) training->train_step(std::vector{batch_of(step, 0, 8)}, {});
    training->prepared().unshard();
    saved = {training->prepared().communication_state()};
    if (!restored.empty()) {
      EXPECT_NE(training->prepared().restore_communication({}).find("is not there"), std::string::npos);
      saved[0]["codec"] = text_to_tensor("int8");
      EXPECT_NE(training->prepared().restore_communication(saved).find("'int8', this model has 'top_k:0.2'"),
                std::string::npos);
    }
    return net;
  };
  const Net whole = train(make_net(), 0, kSteps, {});
  const Net resumed = train(make_net(), 0, kSteps / 2, {});
  EXPECT_TRUE(saved[0].contains("0.weight/residual"));
  const Net anew = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(resumed->clone());
  train(resumed, kSteps / 2, kSteps, saved);
  train(anew, kSteps / 2, kSteps, {});
  expect_equal(*resumed, *whole, 0);
  EXPECT_FALSE(at::equal(anew->parameters()[0], whole->parameters()[0]));
}

TEST(ServerStrategy, PushesAGradientWhileBackwardGoesOn) {
  Servers servers;
  servers.options.server.workers = 2;
  const auto strategy = servers.strategy();
  const Net net = make_net();
  std::function<void()> in_backward;  // called between the gradients of the last layer and of the first
  const auto forward = [net, &in_backward](const at::Tensor& x) {
    const at::Tensor first = net->ptr(0)->as<torch::nn::Linear>()->forward(x);
    if (first.requires_grad())
      first.register_hook([&in_backward](const at::Tensor&) {
        if (in_backward) in_backward();
      });
    return net->ptr(2)->as<torch::nn::Linear>()->forward(torch::tanh(first));
  };
  const auto training = strategy->prepare(
      Recipe{.model = only(Model{.module = net, .forward = forward}), .optimizer = kOptimizers.at("sgd")});
  training->train_step(std::vector{batch_of(0, 0, 8)}, {});
  server::ClusterOptions options = servers.options;
  options.worker = 1;
  server::Cluster other(options, servers.secret, ServedModel::variables_of(*net));
  const auto weight_of = [&](std::size_t variable) {
    std::vector<float> values(other.variables()[variable].elements());
    other.pull(variable, values);
    return values;
  };
  training->prepared().unshard();
  const std::vector<float> first = weight_of(0), last = weight_of(2);
  bool seen = false;
  in_backward = [&] {
    for (const Deadline limit = Deadline::after(std::chrono::seconds(60)); !seen && !limit.passed();)
      seen = weight_of(2) != last;
    EXPECT_EQ(weight_of(0), first);
  };
  training->train_step(std::vector{batch_of(1, 0, 8)}, {});
  EXPECT_TRUE(seen);
  // Gradients that are read before the step are pushed at its end.
  training->prepared().unshard();
  const std::vector<float> before = weight_of(2);
  in_backward = [&] { EXPECT_EQ(weight_of(2), before); };
  training->train_step(std::vector{batch_of(2, 0, 8)}, {.clip_norm = 1e9});
  training->prepared().unshard();
  EXPECT_NE(weight_of(2), before);
  other.leave();
}

TEST(ServerStrategy, SynchronousModeEqualsTheJointBatch) {
  Servers servers;
  servers.options.server = {.mode = server::Mode::sync, .workers = 2};
  const MakeOptimizer& make = kOptimizers.at("adam");
  std::vector<Net> nets = {make_net(), make_net()};
  {
    std::vector<std::jthread> workers;
    for (std::uint32_t w = 0; w < 2; ++w) {
      workers.emplace_back([&, w] {
        const auto strategy = servers.strategy(w);
        const auto training = strategy->prepare(Recipe{.model = model_of(nets[w]), .optimizer = make});
        EXPECT_EQ(strategy->num_replicas_in_sync(), 2);
        // Uses unequal shares: the mean is over samples.
        for (int step = 0; step < kSteps; ++step)
          training->train_step(std::vector{w == 0 ? batch_of(step, 0, 3) : batch_of(step, 3, 5)}, {});
        training->prepared().unshard();
      });
    }
  }
  const Net expected = train_alone(make);
  for (const Net& net : nets) expect_equal(*net, *expected, 2e-6);
}

TEST(ServerStrategy, TwoWorkersReachTargetLossInEveryMode) {
  for (const server::Mode mode : {server::Mode::async, server::Mode::sync, server::Mode::ssp}) {
    Servers servers(2);
    servers.options.server = {.mode = mode, .workers = 2, .staleness = mode == server::Mode::ssp ? 2U : 0U};
    servers.options.partitioner = server::Partitioner::parse("fixed:2", "");
    std::vector<double> losses(2), firsts(2);
    {
      std::vector<std::jthread> workers;
      for (std::uint32_t w = 0; w < 2; ++w) {
        workers.emplace_back([&, w] {
          const auto strategy = servers.strategy(w);
          const auto training = strategy->prepare(
              Recipe{.model = model_of(make_net()),
                     .optimizer = with<torch::optim::Adam>(torch::optim::AdamOptions(0.02))});
          for (int step = 0; step < 500; ++step) {
            const StepResult result =
                training->train_step(std::vector{batch_of(0, 8 * w, 8)}, {.step = step});
            losses[w] = result.totals.loss / 8;
            if (step == 0) firsts[w] = losses[w];
          }
        });
      }
    }
    for (std::size_t w = 0; w < 2; ++w) EXPECT_LT(losses[w], 0.5 * firsts[w]) << static_cast<int>(mode);
  }
}

struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(bool sparse)
      : table(register_module("table",
                              torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 4).sparse(sparse)))),
        head(register_module("head", torch::nn::Linear(4, 3))) {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters())
      parameter.copy_(torch::linspace(-1, 1, parameter.numel()).view(parameter.sizes()));
  }
  at::Tensor forward(const at::Tensor& ids) { return head(table(ids).mean(1)); }
  torch::nn::Embedding table;
  torch::nn::Linear head;
};

TEST(ServerStrategy, TrainsSparseEmbeddingsByRows) {
  const auto batch = [](int step) {
    Batch result;
    result.inputs = {(torch::arange(12) * 7 + step).view({4, 3}) % 50};
    result.targets = {torch::arange(4) % 3};
    result.samples = 4;
    return result;
  };
  auto alone = std::make_shared<WordsImpl>(false);
  torch::optim::SGD sgd(alone->parameters(), torch::optim::SGDOptions(0.5));
  for (int step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    const Batch one = batch(step);
    torch::nn::functional::cross_entropy(alone->forward(one.inputs[0]), one.targets[0]).backward();
    sgd.step();
  }
  Servers servers(2);
  servers.options.partitioner = server::Partitioner::parse("fixed:3", "");
  const auto strategy = servers.strategy();
  const auto words = std::make_shared<WordsImpl>(true);
  const auto training = strategy->prepare(Recipe{
      .model = only(as_model(words)), .optimizer = with<torch::optim::SGD>(torch::optim::SGDOptions(0.5))});
  for (int step = 0; step < kSteps; ++step) training->train_step(std::vector{batch(step)}, {});
  training->prepared().unshard();
  expect_equal(*words, *alone, 1e-6);
}

TEST(ServerStrategy, CheckpointsRestoreServerState) {
  const MakeOptimizer& make = kOptimizers.at("adam");
  const Net whole = train_alone(make);
  const Net net = make_net();
  std::vector<at::Tensor> values;
  std::vector<std::unique_ptr<torch::optim::OptimizerParamState>> states;
  {
    const Servers servers;
    const auto strategy = servers.strategy();
    const auto training = strategy->prepare(Recipe{.model = model_of(net), .optimizer = make});
    for (int step = 0; step < kSteps / 2; ++step) training->train_step(std::vector{batch_of(step, 0, 8)}, {});
    training->prepared().parts().flush();
    for (const at::Tensor& parameter : net->parameters()) {
      values.push_back(parameter.detach().clone());
      states.push_back(training->optimizer().state().at(parameter.unsafeGetTensorImpl())->clone());
    }
    EXPECT_EQ(static_cast<torch::optim::AdamParamState&>(*states[0]).step(), kSteps / 2);
  }
  const Servers servers;
  const auto strategy = servers.strategy();
  const Net next = make_net();
  const auto training = strategy->prepare(Recipe{.model = model_of(next), .optimizer = make});
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < values.size(); ++i) {
      next->parameters()[i].copy_(values[i]);
      training->optimizer().state()[next->parameters()[i].unsafeGetTensorImpl()] = std::move(states[i]);
    }
  }
  training->prepared().parts().reload_shards();
  for (int step = kSteps / 2; step < kSteps; ++step)
    training->train_step(std::vector{batch_of(step, 0, 8)}, {});
  training->prepared().unshard();
  expect_equal(*next, *whole, 2e-6);
}

TEST(ServerStrategy, CountsNanGradientAndKeepsWeights) {
  const Servers servers;
  const auto strategy = servers.strategy();
  const Net net = make_net();
  const auto training = strategy->prepare(Recipe{.model = model_of(net), .optimizer = kOptimizers.at("sgd")});
  Batch bad = batch_of(0, 0, 8);
  bad.inputs[0][0][0] = std::numeric_limits<float>::quiet_NaN();
  training->train_step(std::vector{bad}, {});
  training->prepared().unshard();
  expect_equal(*net, *make_net(), 0);
  EXPECT_GT(strategy->figures().workers[0].refused, 0U);
}

TEST(ServerStrategy, RefusesByNameWhatServersHaveNot) {
  const Servers servers;
  const auto strategy = servers.strategy();
  const auto net = make_net();
  net->to(torch::kDouble);
  expect_facts(message_of<UsageError>([&] { strategy->prepare(net); }), {"0.weight", "float64", "float32"});
  const Net other = make_net();
  const auto training = strategy->prepare(Recipe{
      .model = model_of(other), .optimizer = with<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.1))});
  expect_facts(message_of<UsageError>([&] { training->train_step(std::vector{batch_of(0, 0, 8)}, {}); }),
               {"RMSprop", "SGD", "Adagrad"});
}

template <class Rule>
std::string refusal_of_rule() {
  const Servers servers;
  const auto strategy = servers.strategy();
  const Net net = make_net();
  const auto training = strategy->prepare(
      Recipe{.model = model_of(net), .optimizer = [](torch::nn::Module& module) {
               return std::make_unique<Rule>(
                   std::vector<torch::optim::OptimizerParamGroup>{module.parameters()}, RuleOptions(0.1));
             }});
  return message_of<UsageError>([&] { training->train_step(std::vector{batch_of(0, 0, 8)}, {}); });
}

TEST(ServerStrategy, RefusesRulesThatServersHaveNot) {
  for (const std::string& message :
       {refusal_of_rule<Lamb>(), refusal_of_rule<Lars>(), refusal_of_rule<Lion>()})
    expect_facts(message, {"Lion", "LAMB", "LARS", "Adagrad"});
}

}  // namespace
}  // namespace rondo::server_strategy_test
