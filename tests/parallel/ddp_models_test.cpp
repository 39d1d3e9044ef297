// Models and loops that data parallelism supports without changes.
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/data.h>
#include <torch/optim.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/ddp/ddp.h"
#include "tests/parallel/small_models.h"

namespace rondo::ddp_models_test {
namespace {

using namespace testing;

class DdpModels : public ::testing::TestWithParam<std::string> {};

TEST_P(DdpModels, RanksStartFromRankZerosState) {
  run_ranks(GetParam(), 3, [&](const Group& group) {
    torch::nn::BatchNorm1d model(5);
    const auto fill = static_cast<double>(group.rank() + 1);
    {
      const at::NoGradGuard no_grad;
      model->weight.fill_(fill);
      model->running_mean.fill_(fill);
      model->num_batches_tracked.fill_(fill);
    }
    const DistributedDataParallel ddp(*model, group);
    EXPECT_EQ(model->weight.sum().item<double>(), 5);
    EXPECT_EQ(model->running_mean.sum().item<double>(), 5);
    EXPECT_EQ(model->num_batches_tracked.item<std::int64_t>(), 1);
  });
}

struct OwnPartImpl : torch::nn::Module {
  explicit OwnPartImpl(int rank)
      : shared(register_module("shared", torch::nn::Linear(2, 2))),
        own(register_parameter("own", torch::full({rank + 1}, 1.0F + static_cast<float>(rank)))) {}
  at::Tensor forward(const at::Tensor& x) { return shared(x) * own.sum(); }
  torch::nn::Linear shared;
  at::Tensor own;
};

// An ignored parameter may even have another shape on every rank.
TEST_P(DdpModels, IgnoredParametersAreTheRanksOwn) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    const int rank = group.rank();
    const auto model = std::make_shared<OwnPartImpl>(rank);
    DdpOptions options;
    options.ignored = {"own"};
    DistributedDataParallel ddp(*model, group, options);
    EXPECT_EQ(model->own.sizes(), (at::IntArrayRef{rank + 1}));
    const at::Tensor input = torch::full({1, 2}, 1.0F + static_cast<float>(rank));
    ddp.forward(*model, input).sum().backward();
    // The gradient of the rank's own parameter is local: the sum of the shared layer's output.
    EXPECT_NEAR(model->own.grad()[0].item<double>(), model->shared(input).sum().item<double>(), 1e-5);
    // The gradient of the shared layer is the mean: inputs 1 and 2 with factors 1 and 4.
    EXPECT_NEAR(model->shared->weight.grad()[0][0].item<double>(), (1 * 1 + 2 * 4) / 2.0, 1e-5);
    options.ignored = {"other"};
    EXPECT_THROW(DistributedDataParallel(*model, group, options), UsageError);
  });
}

TEST_P(DdpModels, LayoutsOtherThanContiguousKeepTheirStrides) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    at::Tensor transposed =
        random_tensor({4, 6}, 1 + static_cast<std::uint64_t>(group.rank())).t().requires_grad_();
    DistributedDataParallel ddp(ModelTensors{{{"weight", transposed}}, {}}, group);
    EXPECT_LT(largest_difference(transposed.detach(), random_tensor({4, 6}, 1).t()), kTolerance);
    for (int step = 0; step < 2; ++step) {
      transposed.mutable_grad().reset();
      ((transposed * transposed).sum() * (group.rank() + 1)).backward();
      EXPECT_EQ(transposed.grad().strides(), transposed.strides());
      EXPECT_LT(largest_difference(transposed.grad(), transposed.detach() * 3), kTolerance);
    }
  });
}

// A model with one weight in two modules, used twice in the graph.
struct TiedImpl : torch::nn::Module {
  struct Half : torch::nn::Module {
    explicit Half(const at::Tensor& shared) { weight = register_parameter("weight", shared); }
    at::Tensor weight;
  };
  TiedImpl() {
    const at::Tensor shared = random_tensor({4, 4}, 5);
    encoder = register_module("encoder", std::make_shared<Half>(shared));
    decoder = register_module("decoder", std::make_shared<Half>(shared));
  }
  at::Tensor forward(const at::Tensor& input) {
    return torch::relu(input.matmul(encoder->weight)).matmul(decoder->weight) + input.matmul(encoder->weight);
  }
  std::shared_ptr<Half> encoder, decoder;
};
TORCH_MODULE(Tied);

TEST_P(DdpModels, SharedParametersAreReducedOnce) {
  const at::Tensor input = random_tensor({6, 4}, 9);
  Tied reference;
  reference->forward(input).pow(2).mean().backward();
  EXPECT_EQ(tensors_of(*reference).parameters.size(), 1U);
  run_ranks(GetParam(), 2, [&](const Group& group) {
    Tied model;
    DistributedDataParallel ddp(*model, group);
    for (int step = 0; step < 2; ++step) {
      model->zero_grad();
      ddp.forward(model, input.narrow(0, group.rank() * 3, 3)).pow(2).mean().backward();
      EXPECT_LT(largest_difference(model->encoder->weight.grad(), reference->encoder->weight.grad()),
                kTolerance);
    }
  });
}

TEST_P(DdpModels, FrozenAndIntegerParametersAreLeftAlone) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    TwoLayers model(1);
    model->first->weight.requires_grad_(false);
    model->register_parameter("steps", at::full({3}, group.rank(), at::kLong), /*requires_grad=*/false);
    DistributedDataParallel ddp(*model, group);
    EXPECT_EQ(model->named_parameters()["steps"].sum().item<std::int64_t>(), 0);
    const Batch batch = my_rows(joint_batch(4, 0), group);
    mean_loss(ddp.forward(model, batch.input), batch).backward();
    EXPECT_FALSE(model->first->weight.grad().defined());
    TwoLayers reference(1);
    const Batch joint = joint_batch(4, 0);
    mean_loss(reference->forward(joint.input), joint).backward();
    EXPECT_LT(largest_difference(model->second->weight.grad(), reference->second->weight.grad()), kTolerance);
  });
}

TEST_P(DdpModels, EveryFloatingDtypeInOneModel) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    ModelTensors tensors;
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble, at::kHalf, at::kFloat}) {
      tensors.parameters.push_back(
          {str(c10::toString(dtype), tensors.parameters.size()), at::ones({33}, dtype).requires_grad_()});
    }
    DistributedDataParallel ddp(tensors, group);
    for (int step = 0; step < 3; ++step) {
      at::Tensor loss = at::zeros({}, at::kDouble);
      for (ModelTensor& entry : tensors.parameters) {
        entry.tensor.mutable_grad().reset();
        loss = loss + entry.tensor.to(at::kDouble).sum() * (2 * group.rank() + 1);
      }
      loss.backward();
      for (const ModelTensor& entry : tensors.parameters) {
        EXPECT_EQ(entry.tensor.grad().scalar_type(), entry.tensor.scalar_type());
        EXPECT_EQ(entry.tensor.grad().to(at::kDouble).sum().item<double>(), 66) << entry.name;
      }
    }
  });
}

TEST_P(DdpModels, BuffersFollowRankZeroBeforeForward) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    torch::nn::BatchNorm1d model(3);
    DistributedDataParallel ddp(*model, group);
    const auto forward = [&](std::uint64_t seed) {
      return ddp.forward(
          model, random_tensor({8, 3}, seed + 10 * static_cast<std::uint64_t>(group.rank()), at::kFloat));
    };
    forward(1).sum().backward();
    const at::Tensor local = model->running_mean.clone();
    {
      // Under no_sync, and after a forward pass without gradients, no buffers are broadcast.
      const NoSync guard = ddp.no_sync();
      ddp.before_forward();
    }
    if (group.rank() == 0) {
      EXPECT_LT(largest_difference(local, model->running_mean), 1e-12);
    } else {
      EXPECT_GT(largest_difference(local, model->running_mean), 1e-6);
    }
    std::vector<at::Tensor> sum = {model->running_mean.clone()};
    group.backend()->allreduce(sum)->wait();
    EXPECT_LT(largest_difference(sum[0], model->running_mean * 2), 1e-6);
    model->running_mean.add_(group.rank());
    ddp.before_forward();  // not due: the last forward was under no_sync
    EXPECT_LT(largest_difference(sum[0] / 2 + group.rank(), model->running_mean), 1e-6);
    ddp.before_forward();
    EXPECT_LT(largest_difference(sum[0] / 2, model->running_mean), 1e-6);
  });
}

TEST_P(DdpModels, WithoutBroadcastBuffersStayLocal) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    torch::nn::BatchNorm1d model(3);
    DdpOptions options;
    options.broadcast_buffers = false;
    DistributedDataParallel ddp(*model, group, options);
    model->running_mean.fill_(group.rank());
    ddp.before_forward();
    EXPECT_EQ(model->running_mean.sum().item<double>(), 3 * group.rank());
  });
}

TEST_P(DdpModels, ATorchScriptModule) {
  const at::Tensor input = random_tensor({8, 3}, 1);
  const auto make = [](std::uint64_t seed) {
    torch::jit::Module module("Scripted");
    module.register_parameter("weight", random_tensor({2, 3}, seed).requires_grad_(), /*is_buffer=*/false);
    module.register_buffer("offset", random_tensor({2}, seed + 1));
    module.define(
        "def forward(self, x):\n  return torch.tanh(torch.matmul(x, self.weight.t()) + self.offset)\n");
    return module;
  };
  torch::jit::Module reference = make(1);
  reference.forward({input}).toTensor().pow(2).mean().backward();
  run_ranks(GetParam(), 2, [&](const Group& group) {
    torch::jit::Module model = make(1 + static_cast<std::uint64_t>(group.rank()));
    DistributedDataParallel ddp(model, group);
    const std::vector<torch::jit::IValue> inputs = {input.narrow(0, 4 * group.rank(), 4)};
    ddp.forward(model, inputs).toTensor().pow(2).mean().backward();
    EXPECT_LT(largest_difference(model.attr("weight").toTensor().grad(),
                                 reference.attr("weight").toTensor().grad()),
              kTolerance);
  });
}

// A generator and a discriminator with batch normalisation and an optimizer each. Two forward passes of the
// discriminator share one backward pass.
struct Gan {
  Gan() {
    for (const auto& module : {generator.ptr(), discriminator.ptr()}) {
      module->to(at::kDouble);
      fill_parameters(*module, 3);
    }
  }
  torch::nn::Sequential generator{torch::nn::Linear(2, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3)};
  torch::nn::Sequential discriminator{torch::nn::Linear(3, 8), torch::nn::BatchNorm1d(8), torch::nn::Tanh(),
                                      torch::nn::Linear(8, 1)};
  torch::optim::Adam generator_optimizer{generator->parameters(), torch::optim::AdamOptions(0.01)};
  torch::optim::Adam discriminator_optimizer{discriminator->parameters(), torch::optim::AdamOptions(0.01)};
};

TEST_P(DdpModels, TwoModelsAndOptimizersInOneLoop) {
  for (const bool keep_discriminator_local : {true, false}) {
    std::vector<at::Tensor> sums(2);
    run_ranks(GetParam(), 2, [&](const Group& group) {
      Gan gan;
      DistributedDataParallel generator(*gan.generator, group);
      DistributedDataParallel discriminator(*gan.discriminator, group);
      for (std::uint64_t step = 0; step < 4; ++step) {
        const std::uint64_t seed = 100 * step + static_cast<std::uint64_t>(group.rank());
        const at::Tensor real = random_tensor({6, 3}, seed + 10);
        const at::Tensor noise = random_tensor({6, 2}, seed + 20);
        gan.discriminator_optimizer.zero_grad();
        const at::Tensor fake = generator.forward(gan.generator, noise);
        const at::Tensor loss =
            torch::softplus(-discriminator.forward(gan.discriminator, real)).mean() +
            torch::softplus(discriminator.forward(gan.discriminator, fake.detach())).mean();
        loss.backward();
        gan.discriminator_optimizer.step();

        gan.generator_optimizer.zero_grad();
        std::optional<NoSync> guard;
        if (keep_discriminator_local) guard.emplace(discriminator.no_sync());
        torch::softplus(-gan.discriminator->forward(fake)).mean().backward();
        guard.reset();
        gan.generator_optimizer.step();
      }
      at::Tensor sum = at::zeros({}, at::kDouble);
      for (const auto& module : {gan.generator, gan.discriminator}) {
        for (const at::Tensor& parameter : module->parameters()) sum += parameter.detach().abs().sum();
      }
      sums[static_cast<std::size_t>(group.rank())] = sum;
    });
    EXPECT_EQ(sums[0].item<double>(), sums[1].item<double>());
  }
}

struct NetImpl : torch::nn::Module {
  NetImpl() : words(torch::nn::EmbeddingOptions(9, 4).sparse(true)), output(4, 2) {
    register_module("words", words);
    register_module("output", output);
  }
  at::Tensor forward(const at::Tensor& x) { return output(words(x)); }
  torch::nn::Embedding words;
  torch::nn::Linear output;
};

// The model is on the stack, as `Net model;` in public programs, without a shared_ptr.
TEST_P(DdpModels, AModelOnTheStack) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    NetImpl model;
    DistributedDataParallel ddp(model, group);
    torch::nn::EmbeddingImpl alone(torch::nn::EmbeddingOptions(9, 4).sparse(true));
    DistributedDataParallel ddp_alone(alone, group);
    const at::Tensor input = torch::full({3}, group.rank(), at::kLong);
    ddp.forward(model, input).sum().backward();
    ddp_alone.forward(alone, input).sum().backward();
    for (const at::Tensor& table : {model.words->weight, alone.weight}) {
      EXPECT_TRUE(table.grad().is_sparse());
      EXPECT_EQ(table.grad().coalesce()._indices().numel(), 2);  // rows of both ranks
    }
  });
}

struct Points : torch::data::datasets::Dataset<Points> {
  torch::data::Example<> get(std::size_t index) override {
    return {random_tensor({6}, 10 + index), random_tensor({4}, 500 + index)};
  }
  torch::optional<std::size_t> size() const override { return 16; }
};

TEST_P(DdpModels, ATorchDataLoaderWithADistributedSampler) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    TwoLayers model(1);
    DistributedDataParallel ddp(*model, group);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    auto loader = torch::data::make_data_loader(
        Points().map(torch::data::transforms::Stack<>()),
        torch::data::samplers::DistributedRandomSampler(16, static_cast<std::size_t>(group.size()),
                                                        static_cast<std::size_t>(group.rank())),
        torch::data::DataLoaderOptions(4));
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      torch::mse_loss(ddp.forward(model, batch.data), batch.target).backward();
      optimizer.step();
    }
    std::vector<at::Tensor> sum = {model->first->weight.detach().clone()};
    group.backend()->allreduce(sum)->wait();
    EXPECT_LT(largest_difference(sum[0], model->first->weight.detach() * 2), kTolerance);
  });
}

std::string engine_name(const ::testing::TestParamInfo<std::string>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Engines, DdpModels, ::testing::ValuesIn(engines()), engine_name);

}  // namespace
}  // namespace rondo::ddp_models_test
