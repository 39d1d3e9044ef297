// The common reference: data parallelism on n ranks computes the same as one process on the joint batch.
#include <gtest/gtest.h>
#include <torch/optim.h>

#include "rondo/base/error.h"
#include "rondo/parallel/ddp/ddp.h"
#include "tests/parallel/small_models.h"

namespace rondo::ddp_averaging_test {
namespace {

using namespace testing;

class DdpAveraging : public ::testing::TestWithParam<Setting> {
 protected:
  const std::string& engine() const { return GetParam().engine; }
  // Trains for some steps on `world` ranks and in one process, and compares the parameters.
  void expect_same_training(
      int world, const DdpOptions& options, bool set_to_none,
      const std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<at::Tensor>&)>&
          make_optimizer) const;
  TwoLayers make_model(std::uint64_t seed = 1) const { return TwoLayers(seed, GetParam().large ? 2100 : 16); }
};

void DdpAveraging::expect_same_training(
    int world, const DdpOptions& options, bool set_to_none,
    const std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<at::Tensor>&)>&
        make_optimizer) const {
  constexpr int steps = 4;
  TwoLayers reference = make_model(1);
  const auto reference_optimizer = make_optimizer(reference->parameters());
  for (int step = 0; step < steps; ++step) {
    const Batch batch = joint_batch(12, static_cast<std::uint64_t>(step));
    reference_optimizer->zero_grad();
    mean_loss(reference->forward(batch.input), batch).backward();
    reference_optimizer->step();
  }
  run_ranks(engine(), world, [&](const Group& group) {
    TwoLayers model = make_model(1 + 50 * static_cast<std::uint64_t>(group.rank()));  // rank 0's weights win
    DistributedDataParallel ddp(*model, group, options);
    const auto optimizer = make_optimizer(model->parameters());
    for (int step = 0; step < steps; ++step) {
      const Batch batch = my_rows(joint_batch(12, static_cast<std::uint64_t>(step)), group);
      optimizer->zero_grad(set_to_none);
      mean_loss(ddp.forward(model, batch.input), batch).backward();
      optimizer->step();
    }
    EXPECT_LT(parameter_difference(*model, *reference), kTolerance) << "rank " << group.rank();
  });
}

// Added to denominators. Optimizers that divide by the size of a gradient turn rounding errors of gradients
// near zero, which depend on the processor's vector width, into full-size steps. This value keeps such steps
// small.
constexpr double kEpsilon = 1e-2;

std::unique_ptr<torch::optim::Optimizer> adam(const std::vector<at::Tensor>& parameters) {
  return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01).eps(kEpsilon));
}

TEST_P(DdpAveraging, EqualsOneProcessWhateverTheBuckets) {
  for (const int world : {1, 2, 3}) {
    for (const std::optional<Bytes> cap :
         {std::optional<Bytes>{}, std::optional{Bytes{1}}, std::optional{Bytes{300}}}) {
      for (const bool as_view : {true, false}) {
        for (const bool set_to_none : {true, false}) {
          DdpOptions options;
          options.bucket_bytes = cap;
          options.gradient_as_bucket_view = as_view;
          expect_same_training(world, options, set_to_none, adam);
        }
      }
    }
  }
}

TEST_P(DdpAveraging, EqualsOneProcessWithEveryOptimizer) {
  using namespace torch::optim;
  const auto check = [&](auto make) { expect_same_training(2, {}, true, make); };
  check([](const auto& p) {
    // Larger rates diverge.
    return std::make_unique<SGD>(p, SGDOptions(0.001).momentum(0.9).weight_decay(0.01));
  });
  check([](const auto& p) { return std::make_unique<AdamW>(p, AdamWOptions(0.01).eps(kEpsilon)); });
  check([](const auto& p) { return std::make_unique<RMSprop>(p, RMSpropOptions(0.01).eps(kEpsilon)); });
  check([](const auto& p) { return std::make_unique<Adagrad>(p, AdagradOptions(0.01).eps(kEpsilon)); });
}

TEST_P(DdpAveraging, LbfgsEvaluatesItsClosureOnAllRanks) {
  TwoLayers reference = make_model();
  const auto train = [](TwoLayers& model, const Batch& batch,
                        const std::function<at::Tensor(const at::Tensor&)>& forward,
                        const std::function<double(double)>& average) {
    torch::optim::LBFGS optimizer(model->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(5));
    optimizer.step([&] {
      optimizer.zero_grad();
      at::Tensor loss = mean_loss(forward(batch.input), batch);
      loss.backward();
      return at::full({}, average(loss.item<double>()), at::kDouble);
    });
  };
  const Batch joint = joint_batch(12, 0);
  train(
      reference, joint, [&](const at::Tensor& x) { return reference->forward(x); },
      [](double x) { return x; });
  run_ranks(engine(), 2, [&](const Group& group) {
    TwoLayers model = make_model();
    DistributedDataParallel ddp(*model, group);
    train(
        model, my_rows(joint, group), [&](const at::Tensor& x) { return ddp.forward(model, x); },
        [&](double x) {
          std::vector<at::Tensor> sum = {at::full({1}, x, at::kDouble)};
          group.backend()->allreduce(sum)->wait();
          return sum[0].item<double>() / group.size();
        });
    EXPECT_LT(parameter_difference(*model, *reference), 1e-9);
  });
}

void train_lbfgs(TwoLayers& model, const Batch& batch, DistributedDataParallel* ddp, bool told) {
  torch::optim::LBFGS optimizer(model->parameters(),
                                torch::optim::LBFGSOptions(1.0).max_iter(8).line_search_fn("strong_wolfe"));
  for (int step = 0; step < 8; ++step) {
    const auto closure = [&] {
      optimizer.zero_grad();
      if (ddp != nullptr) ddp->set_local_samples(batch.input.size(0));
      at::Tensor loss =
          mean_loss(ddp != nullptr ? ddp->forward(model, batch.input) : model(batch.input), batch);
      loss.backward();
      return loss;
    };
    told ? ddp->step(optimizer, closure) : optimizer.step(closure);
  }
}

// Ranks have unequal parts of the batch, so their losses and weights differ.
TEST_P(DdpAveraging, OptimizerClosureGetsTheGroupsLoss) {
  TwoLayers reference = make_model();
  const Batch joint = joint_batch(12, 0);
  train_lbfgs(reference, joint, nullptr, false);
  run_ranks(engine(), 2, [&](const Group& group) {
    TwoLayers model = make_model();
    DistributedDataParallel ddp(*model, group);
    train_lbfgs(model, group.rank() == 0 ? rows(joint, 0, 4) : rows(joint, 4, 8), &ddp, true);
    EXPECT_LT(parameter_difference(*model, *reference), 1e-5);
  });
}

TEST_P(DdpAveraging, RanksThatGoDifferentWaysAreNamed) {
  const Batch joint = joint_batch(12, 0);
  run_ranks(engine(), 2, [&](const Group& group) {
    TwoLayers model = make_model();
    DistributedDataParallel ddp(*model, group);
    // Simulates ranks that choose the step size by their own loss.
    const std::string message = message_of<MismatchError>([&] {
      for (int step = 0; step < 200; ++step) {
        mean_loss(ddp.forward(model, my_rows(joint, group).input), my_rows(joint, group)).backward();
        const at::NoGradGuard no_grad;
        for (const at::Tensor& parameter : model->parameters()) {
          parameter.add_(parameter.grad(), group.rank() == 0 ? -0.1 : -0.2);
          parameter.mutable_grad().reset();
        }
      }
    });
    expect_facts(message, {"rank 0", "rank 1", "ddp.step(optimizer, closure)", "check_parameters_every"});
  });
}

TEST_P(DdpAveraging, AClosureWithoutASynchronisedPassIsNamed) {
  run_ranks(engine(), 2, [&](const Group& group) {
    TwoLayers model = make_model();
    DistributedDataParallel ddp(*model, group);
    torch::optim::LBFGS optimizer(model->parameters(), torch::optim::LBFGSOptions(0.1));
    const Batch batch = my_rows(joint_batch(12, 0), group);
    const auto step = [&] {
      ddp.step(optimizer, [&] { return mean_loss(ddp.forward(model, batch.input), batch); });
    };
    expect_facts(message_of<UsageError>(step), {"closure", "backward"});
  });
}

TEST_P(DdpAveraging, ScheduleChangesLearningRateOnAllRanks) {
  TwoLayers reference = make_model();
  const auto train = [](TwoLayers& model, const std::function<at::Tensor(const Batch&)>& loss) {
    torch::optim::SGD optimizer(model->parameters(), 0.01);
    torch::optim::StepLR schedule(optimizer, /*step_size=*/1, /*gamma=*/0.3);
    for (std::uint64_t step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      loss(joint_batch(8, step)).backward();
      optimizer.step();
      schedule.step();
    }
  };
  train(reference, [&](const Batch& batch) { return mean_loss(reference->forward(batch.input), batch); });
  run_ranks(engine(), 2, [&](const Group& group) {
    TwoLayers model = make_model();
    DistributedDataParallel ddp(*model, group);
    train(model, [&](const Batch& joint) {
      const Batch batch = my_rows(joint, group);
      return mean_loss(ddp.forward(model, batch.input), batch);
    });
    EXPECT_LT(parameter_difference(*model, *reference), kTolerance);
  });
}

TEST_P(DdpAveraging, UnequalBatchesWeighBySamples) {
  const std::vector<std::vector<std::int64_t>> splits = {{5, 2}, {1, 6}, {7, 0}, {3, 0, 4}, {2, 2, 3}};
  for (const auto& split : splits) {
    const Batch joint = joint_batch(7, 0);
    TwoLayers reference = make_model();
    mean_loss(reference->forward(joint.input), joint).backward();
    for (const bool as_view : {true, false}) {
      run_ranks(engine(), static_cast<int>(split.size()), [&](const Group& group) {
        TwoLayers model = make_model();
        DdpOptions options;
        options.gradient_as_bucket_view = as_view;
        DistributedDataParallel ddp(*model, group, options);
        const auto rank = static_cast<std::size_t>(group.rank());
        const std::int64_t begin =
            std::accumulate(split.begin(), split.begin() + group.rank(), std::int64_t{0});
        for (int repetition = 0; repetition < 3; ++repetition) {
          model->zero_grad();
          const Batch mine = rows(joint, begin, split[rank]);
          ddp.set_local_samples(split[rank]);
          // The mean over no samples is NaN, and so are its gradients; they must not spread.
          mean_loss(ddp.forward(model, mine.input), mine).backward();
          EXPECT_LT(gradient_difference(*model, *reference), kTolerance);
        }
      });
    }
  }
}

TEST_P(DdpAveraging, ARankWithoutSamplesNeedsNoBackward) {
  const Batch joint = joint_batch(4, 0);
  TwoLayers reference = make_model();
  mean_loss(reference->forward(joint.input), joint).backward();
  run_ranks(engine(), 2, [&](const Group& group) {
    TwoLayers model = make_model();
    DistributedDataParallel ddp(*model, group);
    for (int step = 0; step < 4; ++step) {
      const bool idle = group.rank() == step % 2;
      model->zero_grad();
      ddp.set_local_samples(idle ? 0 : 4);
      if (idle) {
        ddp.synchronize_without_backward();
      } else {
        mean_loss(ddp.forward(model, joint.input), joint).backward();
      }
      EXPECT_LT(gradient_difference(*model, *reference), kTolerance);
    }
  });
}

TEST_P(DdpAveraging, NoSamplesAnywhereGivesZeros) {
  run_ranks(engine(), 2, [&](const Group& group) {
    TwoLayers model = make_model();
    DistributedDataParallel ddp(*model, group);
    ddp.set_local_samples(0);
    ddp.synchronize_without_backward();
    for (const at::Tensor& parameter : model->parameters()) {
      EXPECT_EQ(parameter.grad().abs().sum().item<double>(), 0);
    }
  });
}

TEST_P(DdpAveraging, SamplesCountForOneStepOnly) {
  const Batch joint = joint_batch(8, 0);
  run_ranks(engine(), 2, [&](const Group& group) {
    TwoLayers reference = make_model();
    mean_loss(reference->forward(joint.input), joint).backward();
    TwoLayers model = make_model();
    DistributedDataParallel ddp(*model, group);
    const Batch mine = my_rows(joint, group);
    ddp.set_local_samples(group.rank() == 0 ? 1 : 1000);
    mean_loss(ddp.forward(model, mine.input), mine).backward();
    EXPECT_GT(gradient_difference(*model, *reference), 1e-6);
    model->zero_grad();
    mean_loss(ddp.forward(model, mine.input), mine).backward();
    EXPECT_LT(gradient_difference(*model, *reference), kTolerance);
  });
}

TEST_P(DdpAveraging, NoSyncAccumulatesUntilTheNextPass) {
  constexpr int micro_batches = 3;
  for (const bool as_view : {true, false}) {
    TwoLayers reference = make_model();
    torch::optim::SGD reference_optimizer(reference->parameters(), 0.1);
    for (std::uint64_t step = 0; step < 3; ++step) {
      reference_optimizer.zero_grad();
      for (std::uint64_t micro = 0; micro < micro_batches; ++micro) {
        const Batch batch = joint_batch(8, step * micro_batches + micro);
        (mean_loss(reference->forward(batch.input), batch) / micro_batches).backward();
      }
      reference_optimizer.step();
    }
    run_ranks(engine(), 2, [&](const Group& group) {
      TwoLayers model = make_model();
      DdpOptions options;
      options.gradient_as_bucket_view = as_view;
      DistributedDataParallel ddp(*model, group, options);
      torch::optim::SGD optimizer(model->parameters(), 0.1);
      const auto micro_step = [&](std::uint64_t index) {
        const Batch batch = my_rows(joint_batch(8, index), group);
        (mean_loss(ddp.forward(model, batch.input), batch) / micro_batches).backward();
      };
      for (std::uint64_t step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        {
          const NoSync guard = ddp.no_sync();
          for (std::uint64_t micro = 0; micro + 1 < micro_batches; ++micro)
            micro_step(step * micro_batches + micro);
        }
        micro_step(step * micro_batches + micro_batches - 1);
        optimizer.step();
      }
      EXPECT_LT(parameter_difference(*model, *reference), kTolerance);
    });
  }
}

TEST_P(DdpAveraging, UnclearedGradientsAddUpAsInOneProcess) {
  TwoLayers reference = make_model();
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Batch batch = joint_batch(6, step);
    mean_loss(reference->forward(batch.input), batch).backward();
  }
  run_ranks(engine(), 3, [&](const Group& group) {
    TwoLayers model = make_model();
    DistributedDataParallel ddp(*model, group);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Batch batch = my_rows(joint_batch(6, step), group);
      mean_loss(ddp.forward(model, batch.input), batch).backward();
    }
    EXPECT_LT(gradient_difference(*model, *reference), kTolerance);
  });
}

TEST_P(DdpAveraging, ANegativeNumberOfSamplesIsRejected) {
  run_ranks(engine(), 2, [&](const Group& group) {
    TwoLayers model = make_model();
    DistributedDataParallel ddp(*model, group);
    EXPECT_THROW(ddp.set_local_samples(-1), UsageError);
  });
}

INSTANTIATE_TEST_SUITE_P(Engines, DdpAveraging, ::testing::ValuesIn(settings()), setting_name);

}  // namespace
}  // namespace rondo::ddp_averaging_test
