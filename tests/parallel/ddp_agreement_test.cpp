// Ranks that disagree about the model, and uneven numbers of batches.
#include <gtest/gtest.h>
#include <torch/optim.h>

#include "rondo/base/error.h"
#include "rondo/parallel/ddp/ddp.h"
#include "rondo/parallel/ddp/join.h"
#include "tests/parallel/small_models.h"

namespace rondo::ddp_agreement_test {
namespace {

using namespace testing;

class DdpAgreement : public ::testing::TestWithParam<std::string> {};

// Checks that every rank throws MismatchError with a message that contains all of `parts`.
void expect_mismatch(const std::string& engine, const std::function<ModelTensors(int rank)>& model,
                     const std::function<DdpOptions(int rank)>& options,
                     const std::vector<std::string>& parts) {
  run_ranks(engine, 3, [&](const Group& group) {
    const auto wrap = [&] {
      const DistributedDataParallel ddp(model(group.rank()), group, options(group.rank()));
    };
    EXPECT_THROW(wrap(), MismatchError);
    const std::string message = message_of(wrap);
    for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
  });
}

at::Tensor parameter(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  return at::zeros(shape, dtype).requires_grad_();
}

// libtorch's "meta" serves as the second device.
TEST_P(DdpAgreement, RefusesModelOnSeveralDevices) {
  run_ranks(GetParam(), 2, [](const Group& group) {
    torch::nn::Module model;
    model.register_parameter("a", at::zeros({2}));
    model.register_parameter("b", at::zeros({2}, at::kMeta));
    const std::string message =
        message_of<UsageError>([&] { const DistributedDataParallel ddp(model, group); });
    expect_facts(message, {"'a'", "cpu", "'b'", "meta", "one device"});
  });
  expect_mismatch(
      GetParam(),
      [](int rank) {
        ModelTensors tensors;
        tensors.parameters = {{"a", parameter({2})}, {"b", parameter({2})}};
        if (rank == 1) tensors.parameters[1].tensor = at::zeros({2}, at::kMeta).requires_grad_();
        return tensors;
      },
      [](int) { return DdpOptions(); }, {"rank 1", "'b'", "meta"});
}

// Reads a value of its input, which a tensor on "meta" does not have.
struct ReadingNetImpl : torch::nn::Module {
  ReadingNetImpl() { linear = register_module("linear", torch::nn::Linear(2, 1)); }
  at::Tensor forward(const at::Tensor& input) { return linear(input * input.sum().item<float>()); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(ReadingNet);

TEST_P(DdpAgreement, RefusesBatchOnAnotherDevice) {
  run_ranks(GetParam(), 2, [](const Group& group) {
    ReadingNet model;
    DistributedDataParallel ddp(*model, group);
    const at::Tensor elsewhere = at::ones({4, 2}, at::kMeta);
    expect_facts(message_of<UsageError>([&] { ddp.forward(model, elsewhere); }), {"meta", "cpu", "input"});
    // Other errors of the model stay libtorch's.
    EXPECT_THROW(ddp.forward(model, at::ones({4, 3})), c10::Error);
    EXPECT_EQ(ddp.forward(model, at::ones({4, 2})).size(0), 4);
  });
}

TEST_P(DdpAgreement, AMovedFromObjectIsAnError) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    torch::nn::Linear model(2, 1);
    DistributedDataParallel ddp(*model, group);
    DistributedDataParallel other(std::move(ddp));
    const at::Tensor input = at::ones({1, 2});
    // NOLINTBEGIN(bugprone-use-after-move): what is tested
    EXPECT_THROW(ddp.forward(model, input), UsageError);
    EXPECT_THROW(ddp.before_forward(), UsageError);
    EXPECT_THROW(static_cast<void>(ddp.no_sync()), UsageError);
    EXPECT_THROW(ddp.set_local_samples(1), UsageError);
    EXPECT_THROW(ddp.synchronize_without_backward(), UsageError);
    EXPECT_THROW(ddp.communication_state(), UsageError);
    EXPECT_THROW(ddp.load_communication_state({}), UsageError);
    EXPECT_THROW(ddp.last_backward(), UsageError);
    EXPECT_THROW(ddp.group(), UsageError);
    // NOLINTEND(bugprone-use-after-move)
    other.forward(model, input).sum().backward();
    ddp = std::move(other);
    ddp.forward(model, input).sum().backward();
    EXPECT_EQ(model->weight.grad()[0][0].item<float>(), 2.0F);
  });
}

TEST_P(DdpAgreement, DifferentModelsAreAnErrorOnEveryRank) {
  const auto defaults = [](int) { return DdpOptions{}; };
  const ModelTensor same{"first", parameter({2})};
  expect_mismatch(GetParam(),
                  [&](int rank) {
                    return ModelTensors{{same, {"weight", parameter({rank == 2 ? 5 : 4, 3})}}, {}};
                  },
                  defaults,
                  {"'weight' float32 [4, 3]", "rank 2 has parameter 'weight' float32 [5, 3]", "rank 0"});
  expect_mismatch(GetParam(),
                  [&](int rank) {
                    return ModelTensors{{same, {rank == 1 ? "w" : "weight", parameter({1})}}, {}};
                  },
                  defaults, {"'weight'", "rank 1 has parameter 'w'"});
  expect_mismatch(
      GetParam(),
      [&](int rank) {
        return ModelTensors{{{"weight", parameter({1}, rank == 1 ? at::kDouble : at::kFloat)}}, {}};
      },
      defaults, {"'weight' float32 [1]", "rank 1 has parameter 'weight' float64 [1]"});
  expect_mismatch(GetParam(),
                  [&](int rank) {
                    return ModelTensors{{same, {"weight", parameter({1}).requires_grad_(rank != 1)}}, {}};
                  },
                  defaults, {"rank 1 has parameter 'weight' float32 [1] without requires_grad"});
  expect_mismatch(GetParam(),
                  [&](int rank) {
                    ModelTensors tensors{{same}, {}};
                    if (rank == 0) tensors.parameters.push_back({"extra", parameter({1})});
                    return tensors;
                  },
                  defaults, {"rank 0 has parameter 'extra'", "rank 1 has nothing more"});
  expect_mismatch(GetParam(),
                  [&](int rank) {
                    return ModelTensors{{same}, {{"mean", at::zeros({1 + rank})}}};
                  },
                  defaults, {"buffer 'mean' float32 [1]", "rank 1 has buffer 'mean' float32 [2]"});
  expect_mismatch(
      GetParam(),
      [&](int) {
        return ModelTensors{{same}, {}};
      },
      [](int rank) {
        DdpOptions options;
        if (rank == 1) options.bucket_bytes = MiB(5);
        return options;
      },
      {"bucket_bytes = default", "rank 1 has option bucket_bytes = 5.0 MiB"});
}

TEST_P(DdpAgreement, NothingToTrainIsAnError) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    EXPECT_THROW(DistributedDataParallel(ModelTensors{{{"w", at::zeros({1})}}, {}}, group), UsageError);
    EXPECT_THROW(DistributedDataParallel(ModelTensors{}, group), UsageError);
  });
  EXPECT_THROW(DistributedDataParallel(ModelTensors{{{"w", parameter({1})}}, {}}, Group()), UsageError);
}

TEST_P(DdpAgreement, TheCheckNamesTheParameterAndTheRank) {
  run_ranks(GetParam(), 3, [&](const Group& group) {
    TwoLayers model(1);
    DdpOptions options;
    options.check_parameters_every = 2;
    DistributedDataParallel ddp(*model, group, options);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    const auto step = [&](std::uint64_t number) {
      const Batch batch = my_rows(joint_batch(6, number), group);
      optimizer.zero_grad();
      mean_loss(ddp.forward(model, batch.input), batch).backward();
      optimizer.step();
    };
    for (std::uint64_t number = 0; number < 4; ++number) step(number);
    if (group.rank() == 1) {
      const at::NoGradGuard no_grad;
      model->second->bias[2] += 1e-9;
    }
    step(4);  // not checked
    try {
      step(5);
      ADD_FAILURE() << "rank " << group.rank() << " noticed nothing";
    } catch (const MismatchError& error) {
      EXPECT_NE(std::string(error.what()).find("'second.bias' on rank 1 differs from rank 0, 2"),
                std::string::npos)
          << error.what();
      EXPECT_NE(std::string(error.what()).find("after 5 synchronised steps"), std::string::npos)
          << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{1});
    }
  });
}

// Covers a parameter that did not require a gradient at construction.
TEST_P(DdpAgreement, AParameterThawedLaterIsNamed) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    TwoLayers model(1);
    model->first->weight.set_requires_grad(false);
    DistributedDataParallel ddp(*model, group);
    const auto backward = [&](std::uint64_t number) {
      const Batch batch = my_rows(joint_batch(4, number), group);
      mean_loss(ddp.forward(model, batch.input), batch).backward();
    };
    backward(0);
    model->first->weight.set_requires_grad(true);
    expect_facts(message_of<UsageError>([&] { backward(1); }), {"first.weight", "requires_grad", "prepare"});
  });
}

TEST_P(DdpAgreement, TheCheckSeesFrozenParameters) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    TwoLayers model(1);
    model->first->weight.set_requires_grad(false);
    DdpOptions options;
    options.check_parameters_every = 1;
    DistributedDataParallel ddp(*model, group, options);
    const auto backward = [&](std::uint64_t number) {
      const Batch batch = my_rows(joint_batch(4, number), group);
      mean_loss(ddp.forward(model, batch.input), batch).backward();
    };
    backward(0);
    if (group.rank() == 1) {
      const at::NoGradGuard no_grad;
      model->first->weight.add_(1);
    }
    expect_facts(message_of<MismatchError>([&] { backward(1); }), {"first.weight", "1", "0"});
  });
}

// Trains on `batches[rank]` batches per rank and checks that the models are equal. Compares with one process
// that adds the gradients of the ranks with a batch, divided according to `options`.
void expect_join(const std::string& engine, const std::vector<int>& batches, const JoinOptions& options,
                 bool tell_samples) {
  const int world = static_cast<int>(batches.size());
  TwoLayers reference(1);
  torch::optim::SGD reference_optimizer(reference->parameters(), 0.1);
  for (int step = 0; step < *std::max_element(batches.begin(), batches.end()); ++step) {
    reference_optimizer.zero_grad();
    int active = 0;
    for (const int count : batches) active += count > step ? 1 : 0;
    for (int rank = 0; rank < world; ++rank) {
      if (batches[static_cast<std::size_t>(rank)] <= step) continue;
      const Batch batch = joint_batch(3, static_cast<std::uint64_t>(100 * step + rank));
      const bool by_active = tell_samples || !options.divide_by_initial_world_size;
      (mean_loss(reference->forward(batch.input), batch) / (by_active ? active : world)).backward();
    }
    reference_optimizer.step();
  }
  run_ranks(engine, world, [&](const Group& group) {
    TwoLayers model(1);
    DistributedDataParallel ddp(*model, group);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    with_join(
        {&ddp},
        [&] {
          for (int step = 0; step < batches[static_cast<std::size_t>(group.rank())]; ++step) {
            const Batch batch = joint_batch(3, static_cast<std::uint64_t>(100 * step + group.rank()));
            optimizer.zero_grad();
            if (tell_samples) ddp.set_local_samples(3);
            mean_loss(ddp.forward(model, batch.input), batch).backward();
            optimizer.step();
          }
        },
        options);
    EXPECT_LT(parameter_difference(*model, *reference), kTolerance) << "rank " << group.rank();
    // Afterwards ddp works as before.
    const Batch batch = joint_batch(3, 0);
    optimizer.zero_grad();
    mean_loss(ddp.forward(model, batch.input), batch).backward();
    TwoLayers again(1);
    {
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < again->parameters().size(); ++i)
        again->parameters()[i].copy_(model->parameters()[i]);
    }
    mean_loss(again->forward(batch.input), batch).backward();
    EXPECT_LT(gradient_difference(*model, *again), kTolerance);
  });
}

TEST_P(DdpAgreement, JoinHandlesUnevenNumbersOfBatches) {
  for (const std::vector<int>& batches :
       std::vector<std::vector<int>>{{3, 5}, {5, 3}, {0, 2}, {2, 0}, {2, 2}, {4, 1, 6}}) {
    for (const bool by_initial : {true, false}) {
      for (const bool tell_samples : {true, false}) {
        expect_join(GetParam(), batches, {.divide_by_initial_world_size = by_initial}, tell_samples);
      }
    }
  }
}

TEST_P(DdpAgreement, JoinCanStopAllRanksEarly) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    TwoLayers model(1);
    DistributedDataParallel ddp(*model, group);
    int steps = 0;
    const auto train = [&] {
      with_join({&ddp},
                [&] {
                  for (int step = 0; step < (group.rank() == 0 ? 2 : 5); ++step) {
                    const Batch batch = joint_batch(3, 0);
                    mean_loss(ddp.forward(model, batch.input), batch).backward();
                    ++steps;
                  }
                },
                {.throw_on_early_termination = true});
    };
    try {
      train();
      ADD_FAILURE() << "rank " << group.rank() << " did not stop";
    } catch (const MismatchError& error) {
      EXPECT_EQ(error.ranks(), std::vector<int>{0});
    }
    EXPECT_EQ(steps, 2);
  });
}

TEST_P(DdpAgreement, JoinWithAccumulationBuffersAndTwoModels) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    torch::nn::Sequential first(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
    torch::nn::Sequential second(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2));
    for (auto module : {first, second}) {
      module->to(at::kDouble);
      fill_parameters(*module, 4);
    }
    DistributedDataParallel a(*first, group);
    DistributedDataParallel b(*second, group);
    torch::optim::SGD optimizer_a(first->parameters(), 0.1);
    torch::optim::SGD optimizer_b(second->parameters(), 0.1);
    with_join({&a, &b}, [&] {
      for (int step = 0; step < 3 + 2 * group.rank(); ++step) {
        const at::Tensor batch = random_tensor({4, 3}, static_cast<std::uint64_t>(step + 10 * group.rank()));
        const bool last_of_two = step % 2 == 1;
        for (auto& [ddp, module, optimizer] :
             {std::tie(a, first, optimizer_a), std::tie(b, second, optimizer_b)}) {
          std::optional<NoSync> guard;
          if (!last_of_two) guard.emplace(ddp.no_sync());
          ddp.forward(module, batch).pow(2).mean().backward();
          if (!last_of_two) continue;
          optimizer.step();
          optimizer.zero_grad();
        }
      }
    });
    for (const auto& module : {first, second}) {
      for (const auto& tensors : {module->parameters(), module->buffers()}) {
        for (const at::Tensor& tensor : tensors) {
          std::vector<at::Tensor> sum = {tensor.detach().to(at::kDouble)};
          if (sum[0].dim() == 0) sum[0] = sum[0].reshape({1});
          const at::Tensor mine = sum[0].clone();
          group.backend()->allreduce(sum)->wait();
          EXPECT_LT(largest_difference(sum[0], mine * 2), kTolerance);
        }
      }
    }
  });
}

TEST_P(DdpAgreement, AnExceptionInTheLoopPassesThroughJoin) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    TwoLayers model(1);
    DistributedDataParallel ddp(*model, group);
    EXPECT_THROW(with_join({&ddp}, [] { throw std::runtime_error("mine"); }), std::runtime_error);
  });
}

std::string engine_name(const ::testing::TestParamInfo<std::string>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Engines, DdpAgreement, ::testing::ValuesIn(engines()), engine_name);

}  // namespace
}  // namespace rondo::ddp_agreement_test
