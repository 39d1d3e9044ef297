// Compares local_sgd with its papers, reproduced in a few lines of torch in one thread: replicas that take
// local steps, their mean, and PyTorch's SGD with Nesterov momentum as the outer optimizer.
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "rondo/base/error.h"
#include "rondo/parallel/local_sgd/local_sgd_options.h"
#include "rondo/parallel/registry.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"

namespace rondo::testing::local_sgd_test {
namespace {

using Net = std::shared_ptr<torch::nn::SequentialImpl>;
using Values = std::vector<at::Tensor>;

constexpr double kRate = 0.1;

// Returns a model with the same weights in every call, plus `shift`.
Net make_net(double shift = 0) {
  auto net = std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(3, 5), torch::nn::Tanh(),
                                                         torch::nn::Linear(5, 2));
  net->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : net->parameters()) {
    parameter.copy_(torch::linspace(-1, 1, parameter.numel(), torch::kDouble).view(parameter.sizes()) +
                    shift);
  }
  return net;
}

// Returns the loss of the batch of `rank` in `step`.
at::Tensor loss_of(Net& net, int rank, int step) {
  const at::Tensor x = torch::sin(torch::arange(12, torch::kDouble).view({4, 3}) * (1 + rank) + step);
  return net->forward(x).pow(2).mean();
}

Values values_of(const Net& net) {
  Values values;
  for (const at::Tensor& parameter : net->parameters()) values.push_back(parameter.detach().clone());
  return values;
}

void expect_near(const Values& result, const Values& expected, double tolerance = 1e-12) {
  ASSERT_EQ(result.size(), expected.size());
  for (std::size_t i = 0; i < result.size(); ++i)
    EXPECT_LE((result[i] - expected[i]).abs().max().item<double>(), tolerance) << "parameter " << i;
}

// Training of one rank, step by step.
class Replica {
 public:
  Replica(const Context& context, const LocalSgdOptions& options, double momentum = 0)
      : rank_(context.rank()),
        net_(make_net(context.rank())),  // all ranks get the weights of rank 0
        strategy_(all_strategies().make("local_sgd", context, options)),
        model_(strategy_->prepare(net_)),
        optimizer_(net_->parameters(), torch::optim::SGDOptions(kRate).momentum(momentum)) {}

  StepTotals train(int steps, bool stop = false) {
    for (int i = 0; i < steps; ++i) {
      optimizer_.zero_grad();
      model_->begin_step({.samples = 4});
      const at::Tensor loss = loss_of(net_, rank_, step_++);
      model_->announce({.loss = loss.item<double>(), .predictions = 4, .samples = 4, .stop = stop});
      loss.backward();
      model_->finish_backward();
      model_->step(optimizer_);
      totals_ = model_->totals();
    }
    return totals_;
  }

  PreparedModel& model() { return *model_; }
  const Net& net() const { return net_; }

 private:
  int rank_;
  int step_ = 0;
  Net net_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<PreparedModel> model_;
  torch::optim::SGD optimizer_;
  StepTotals totals_;
};

// Returns each rank's values after `steps` steps.
std::vector<Values> train_ranks(int ranks, const LocalSgdOptions& options, int steps) {
  std::vector<Values> results(static_cast<std::size_t>(ranks));
  run_ranks(ranks, "native", [&](Context& context) {
    Replica replica(context, options);
    replica.train(steps);
    results[static_cast<std::size_t>(context.rank())] = values_of(replica.net());
  });
  return results;
}

// The papers' algorithm: replicas that take steps alone.
struct Reference {
  explicit Reference(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) nets.push_back(make_net());
  }

  void step_alone(int step) {
    for (std::size_t rank = 0; rank < nets.size(); ++rank) {
      torch::optim::SGD optimizer(nets[rank]->parameters(), kRate);
      optimizer.zero_grad();
      loss_of(nets[rank], static_cast<int>(rank), step).backward();
      optimizer.step();
    }
  }

  Values mean() const {
    Values mean = values_of(nets.front());
    for (std::size_t i = 0; i < mean.size(); ++i) {
      for (std::size_t rank = 1; rank < nets.size(); ++rank) mean[i] += nets[rank]->parameters()[i].detach();
      mean[i] /= static_cast<double>(nets.size());
    }
    return mean;
  }

  void assign(const Values& values) {
    const torch::NoGradGuard no_grad;
    for (Net& net : nets) {
      for (std::size_t i = 0; i < values.size(); ++i) net->parameters()[i].copy_(values[i]);
    }
  }

  std::vector<Net> nets;
};

TEST(LocalSgd, AveragesReplicasOnceInAPeriod) {
  Reference reference(3);
  for (int step = 0; step < 8; ++step) {
    reference.step_alone(step);
    if (step % 3 == 2) reference.assign(reference.mean());
  }
  const std::vector<Values> results = train_ranks(3, {.sync_period = 3}, 8);
  for (std::size_t rank = 0; rank < 3; ++rank) expect_near(results[rank], values_of(reference.nets[rank]));
  // Two steps after the last average the replicas differ again.
  EXPECT_GT((results[0][0] - results[1][0]).abs().max().item<double>(), 1e-3);
}

TEST(LocalSgd, OfPeriodOneIsDataParallelTraining) {
  Values ddp;
  run_ranks(2, "native", [&](Context& context) {
    const Net net = make_net();
    const auto strategy = all_strategies().make("ddp", context);
    const auto model = strategy->prepare(net);
    torch::optim::SGD optimizer(net->parameters(), kRate);
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      model->begin_step({.samples = 4});
      Net own = net;
      loss_of(own, context.rank(), step).backward();
      model->finish_backward();
      model->step(optimizer);
    }
    if (context.rank() == 0) ddp = values_of(net);
  });
  for (const Values& result : train_ranks(2, {.sync_period = 1}, 5)) expect_near(result, ddp);
  // Post-local SGD: the first steps average gradients.
  for (const Values& result : train_ranks(2, {.sync_period = 7, .synchronous_steps = 5}, 5))
    expect_near(result, ddp);
}

struct ThreeLayers : torch::nn::Module {
  ThreeLayers()
      : used(register_module("used", torch::nn::Linear(3, 1))),
        used_by_one(register_module("used_by_one", torch::nn::Linear(3, 1))),
        unused(register_module("unused", torch::nn::Linear(3, 1))) {}
  torch::nn::Linear used, used_by_one, unused;
};

// Parameters of a layer that one rank uses get the mean over all ranks. Unused parameters do not change,
// whatever the optimizer does with a zero gradient.
TEST(LocalSgd, SynchronousStepsLeaveWhatNoRankUses) {
  run_ranks(2, "native", [](Context& context) {
    const auto net = std::make_shared<ThreeLayers>();
    {
      const torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : net->parameters()) parameter.fill_(1);
    }
    const auto strategy =
        all_strategies().make("local_sgd", context, LocalSgdOptions{.synchronous_steps = 5});
    const auto model = strategy->prepare(net);
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0.3));
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      model->begin_step({.samples = 4});
      at::Tensor output = net->used(torch::ones({4, 3}));
      if (context.rank() == 1) output = output + net->used_by_one(torch::ones({4, 3}));
      output.mean().backward();
      model->finish_backward();
      model->step(optimizer);
    }
    EXPECT_TRUE(at::equal(net->unused->weight, torch::ones({1, 3})));
    EXPECT_FALSE(at::equal(net->used_by_one->weight, torch::ones({1, 3})));
    EXPECT_FALSE(at::equal(net->used->weight, torch::ones({1, 3})));
  });
}

TEST(LocalSgd, OnOneRankIsTrainingAlone) {
  Reference reference(1);
  for (int step = 0; step < 7; ++step) reference.step_alone(step);
  expect_near(train_ranks(1, {.sync_period = 2}, 7)[0], values_of(reference.nets[0]));
}

TEST(LocalSgd, DilocoIsNesterovOnTheMeanDifference) {
  Reference reference(2);
  Net outer = make_net();
  torch::optim::SGD nesterov(outer->parameters(), torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(true));
  for (int step = 0; step < 10; ++step) {
    reference.step_alone(step);
    if (step % 2 == 0) continue;
    const Values mean = reference.mean();
    for (std::size_t i = 0; i < mean.size(); ++i) {
      at::Tensor parameter = outer->parameters()[i];
      parameter.mutable_grad() = parameter.detach() - mean[i];
    }
    nesterov.step();
    reference.assign(values_of(outer));
  }
  for (const Values& result : train_ranks(2, {.sync_period = 2, .outer = "diloco"}, 10))
    expect_near(result, values_of(outer));
}

TEST(LocalSgd, FragmentsAreAveragedAtTimesOfTheirOwn) {
  // Two fragments in a period of four: the first is averaged after steps 2, 6, ..., the second after 4, 8,
  // ...
  const std::vector<Values> second = train_ranks(2, {.sync_period = 4, .fragments = 2}, 2);
  const std::vector<Values> fourth = train_ranks(2, {.sync_period = 4, .fragments = 2}, 4);
  const auto equal = [](const std::vector<Values>& results, std::size_t parameter) {
    return torch::equal(results[0][parameter], results[1][parameter]);
  };
  EXPECT_TRUE(equal(second, 0));
  EXPECT_FALSE(equal(second, 3));
  EXPECT_FALSE(equal(fourth, 0));
  EXPECT_TRUE(equal(fourth, 3));
}

TEST(LocalSgd, DelayKeepsStepsDuringAnAverage) {
  // The average is started after the third step and applied after the fifth.
  Reference reference(2);
  std::vector<Values> sent;
  Values mean;
  for (int step = 0; step < 5; ++step) {
    reference.step_alone(step);
    if (step != 2) continue;
    mean = reference.mean();
    for (const Net& net : reference.nets) sent.push_back(values_of(net));
  }
  const std::vector<Values> results = train_ranks(2, {.sync_period = 3, .sync_delay = 2}, 5);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    Values expected = values_of(reference.nets[rank]);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += mean[i] - sent[rank][i];
    expect_near(results[rank], expected);
  }
}

// All kinds of averages; with a delay, some are in flight after most steps.
const std::vector<LocalSgdOptions> kWays = {
    {.sync_period = 4},
    {.sync_period = 4, .outer = "diloco", .fragments = 2},
    {.sync_period = 4, .sync_delay = 3},
    {.sync_period = 4, .outer = "diloco", .fragments = 2, .sync_delay = 3},
    {.sync_period = 3, .synchronous_steps = 2, .outer = "diloco", .sync_delay = 2},
};

TEST(LocalSgd, EvaluationSeesTheMeanWithoutChangingTraining) {
  for (std::size_t way = 0; way < kWays.size(); ++way) {
    SCOPED_TRACE("way " + std::to_string(way));
    const std::vector<Values> undisturbed = train_ranks(2, kWays[way], 12);
    std::vector<Values> shown(2);
    run_ranks(2, "native", [&](Context& context) {
      Replica replica(context, kWays[way]);
      for (int step = 0; step < 11; ++step) {
        replica.train(1);
        replica.model().unshard();
        Values& mine = shown[static_cast<std::size_t>(context.rank())] = values_of(replica.net());
        replica.model().communication_state();
        replica.model().unshard();  // a repeated call changes nothing
        expect_near(values_of(replica.net()), mine, 0);
        barrier(context.world());
        expect_near(shown[0], shown[1], 0);
        barrier(context.world());
      }
      replica.train(1);
      expect_near(values_of(replica.net()), undisturbed[static_cast<std::size_t>(context.rank())], 0);
    });
  }
}

void load(Replica& replica, const Values& values) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < values.size(); ++i) replica.net()->parameters()[i].copy_(values[i]);
}

TEST(LocalSgd, GoesOnFromItsSavedState) {
  for (std::size_t way = 0; way < kWays.size(); ++way) {
    const std::vector<Values> whole = train_ranks(2, kWays[way], 12);
    for (const int saved_at : {6, 7}) {
      SCOPED_TRACE("way " + std::to_string(way) + ", saved at " + std::to_string(saved_at));
      std::vector<CommunicationState> states(2);
      Values saved;  // the checkpoint's model
      run_ranks(2, "native", [&](Context& context) {
        Replica replica(context, kWays[way]);
        replica.train(saved_at);
        replica.model().parts().flush();
        if (context.rank() == 0) saved = values_of(replica.net());
        states[static_cast<std::size_t>(context.rank())] = replica.model().communication_state();
      });
      run_ranks(2, "native", [&](Context& context) {
        Replica replica(context, kWays[way]);
        replica.train(saved_at);  // so that the batches continue
        load(replica, saved);
        EXPECT_EQ(replica.model().restore_communication(states), "");
        replica.model().parts().reload_shards();
        replica.train(12 - saved_at);
        expect_near(values_of(replica.net()), whole[static_cast<std::size_t>(context.rank())], 0);
      });
    }
  }
}

// An average in flight does not change weights that are loaded from elsewhere.
TEST(LocalSgd, GoesOnFromOtherWeightsThatAreLoaded) {
  run_ranks(2, "native", [](Context& context) {
    Replica replica(context, {.sync_period = 4, .sync_delay = 3});
    replica.train(5);
    replica.model().parts().flush();
    const Values other = values_of(make_net(3));
    load(replica, other);
    replica.model().parts().publish_shards();
    expect_near(values_of(replica.net()), other, 0);
    replica.model().begin_step({.samples = 4});
    expect_near(values_of(replica.net()), other, 0);
  });
}

TEST(LocalSgd, OtherRanksGoOnFromTheMean) {
  const LocalSgdOptions options{.sync_period = 4, .outer = "diloco", .fragments = 2, .sync_delay = 3};
  std::vector<CommunicationState> states(2);
  Values saved;
  run_ranks(2, "native", [&](Context& context) {
    Replica replica(context, options);
    replica.train(7);
    replica.model().parts().flush();
    if (context.rank() == 0) saved = values_of(replica.net());
    states[static_cast<std::size_t>(context.rank())] = replica.model().communication_state();
  });
  run_ranks(3, "native", [&](Context& context) {
    Replica replica(context, {.sync_period = 4, .outer = "diloco", .fragments = 2});
    load(replica, saved);
    const std::string lost = replica.model().restore_communication(states);
    expect_facts(lost, {"2 ranks", "3"});
    replica.model().parts().reload_shards();
    expect_near(values_of(replica.net()), saved, 0);
    // The eighth step ends a period, so all replicas are equal after it.
    replica.train(1);
    at::Tensor first = replica.net()->parameters()[3].detach().clone();
    broadcast(first, context.world());
    EXPECT_TRUE(torch::equal(first, replica.net()->parameters()[3].detach()));
  });
}

TEST(LocalSgd, TotalsAreLocalUntilAPeriodEnds) {
  run_ranks(2, "native", [](Context& context) {
    Replica replica(context, {.sync_period = 3});
    const bool asked = context.rank() == 1;
    EXPECT_EQ(replica.train(2, asked).samples, 4);
    EXPECT_FALSE(replica.train(0).stop);
    const StepTotals together = replica.train(1, asked);
    EXPECT_EQ(together.samples, 8);
    EXPECT_TRUE(together.stop);
  });
}

TEST(LocalSgd, RefusesWhatCannotBe) {
  run_ranks(1, "native", [](Context& context) {
    const auto message = [&](const LocalSgdOptions& options) {
      return message_of<UsageError>([&] { all_strategies().make("local_sgd", context, options); });
    };
    expect_facts(message({.sync_period = 0}), {"sync-period", "0"});
    expect_facts(message({.sync_period = 4, .sync_delay = 4}), {"sync-delay", "4", "3"});
    expect_facts(message({.sync_period = 4, .fragments = 5}), {"sync-fragments", "5", "4"});
    expect_facts(message({.outer = "lion"}), {"outer", "lion", "average", "diloco"});
  });
  run_ranks(2, "native", [](Context& context) {
    const LocalSgdOptions options{.sync_period = 4 + context.rank()};
    const auto strategy = all_strategies().make("local_sgd", context, options);
    const std::string message = message_of<MismatchError>([&] { strategy->prepare(make_net()); });
    expect_facts(message, {"rank 1", "sync-period = 5", "sync-period = 4"});
  });
  run_ranks(2, "native", [](Context& context) {
    for (const char* const other : {"ddp", "zero1"}) {
      const auto strategy = all_strategies().make(context.rank() == 0 ? other : "local_sgd", context);
      const std::string message = message_of<MismatchError>([&] { strategy->prepare(make_net()); });
      expect_facts(message, {"rank 0 has option strategy", other, "rank 1 has option strategy = local_sgd"});
    }
  });
}

}  // namespace
}  // namespace rondo::testing::local_sgd_test
