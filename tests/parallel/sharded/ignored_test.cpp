// Parameters that a strategy by unit ignores: they stay whole and local to each rank, which trains them
// itself.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "tests/errors.h"
#include "tests/parallel/sharded/layers.h"

namespace rondo::testing::ignored_test {
namespace {

// A root and a unit with a local parameter each. The root's has another shape on every rank.
struct OwnPartsImpl : torch::nn::Module {
  explicit OwnPartsImpl(int rank) {
    input = register_module("input", torch::nn::Linear(6, 4));
    layer = register_module("layer", Unit<Residual>(4));
    own = register_parameter("own", at::zeros({rank + 1}));
    seen = register_buffer("seen", at::zeros({rank + 1}));
    to(at::kDouble);
    fill_parameters(*this, 5);
    const at::NoGradGuard no_grad;
    own.fill_(0.3 * (rank + 1));
    layer->shift.fill_(0.1 * (rank + 1));
  }
  at::Tensor forward(const at::Tensor& x) { return layer(input(x)) * own.sum(); }
  torch::nn::Linear input{nullptr};
  Unit<Residual> layer{nullptr};
  at::Tensor own, seen;
};
TORCH_MODULE(OwnParts);

std::vector<std::string> own_names() { return {"own", "layer.shift", "seen"}; }

bool is_own(const std::string& name) {
  const std::vector<std::string> names = own_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the rank's parameters after some steps. The strategy's optimizer trains shared parameters, another
// optimizer the local ones.
std::vector<at::Tensor> train(Context& context, const std::string& strategy_name) {
  ShardedOptions options;
  options.ignored = own_names();
  options.shard_ranks = 2;  // used by hsdp
  DdpOptions buckets;
  buckets.ignored = own_names();
  const auto strategy = make_strategy(strategy_name, context, options, buckets);
  OwnParts model(context.rank());
  const auto prepared = strategy->prepare(model.ptr());
  std::vector<at::Tensor> shared;
  for (const ModelTensor& parameter : tensors_of(prepared->module()).parameters) {
    if (!is_own(parameter.name)) {
      shared.push_back(parameter.tensor);
    } else {
      EXPECT_EQ(strategy_name, "ddp") << parameter.name;  // ddp returns the user's own module
    }
  }
  torch::optim::AdamW optimizer(shared, torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
  torch::optim::SGD own_optimizer(std::vector<at::Tensor>{model->own, model->layer->shift},
                                  torch::optim::SGDOptions(0.05));
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    own_optimizer.zero_grad();
    const Batch batch = my_rows(joint_batch(12, static_cast<std::uint64_t>(step)), context.world());
    prepared->begin_step({.samples = batch.input.size(0), .gradients_are_read = false});
    mean_loss(model(batch.input), batch).backward();
    prepared->finish_backward();
    prepared->step(optimizer);
    own_optimizer.step();
  }
  prepared->unshard();
  EXPECT_EQ(model->own.numel(), context.rank() + 1);
  EXPECT_EQ(model->seen.numel(), context.rank() + 1);
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : model->parameters()) result.push_back(parameter.detach().clone());
  barrier(context.world());
  return result;
}

TEST(IgnoredParameters, AreTheRanksOwnAsUnderDdp) {
  for (const bool spans_hosts : {false, true}) {
    const std::vector<int> hosts = spans_hosts ? std::vector<int>{0, 0, 1, 1} : std::vector<int>{};
    run_ranks(
        4, spans_hosts ? "hierarchical(native, gloo)" : "native",
        [&](Context& context) {
          const std::vector<at::Tensor> expected = train(context, "ddp");
          for (const char* const strategy : {"zero1", "zero2", "zero3", "zero3_keep", "hsdp", "random"}) {
            EXPECT_LT(largest_difference(train(context, strategy), expected), 1e-10)
                << strategy << ", rank " << context.rank();
          }
        },
        std::chrono::seconds(60), hosts);
  }
}

TEST(IgnoredParameters, RefuseWhatCannotBe) {
  run_ranks(2, "native", [](Context& context) {
    const auto prepare = [&](const std::string& strategy, std::vector<std::string> ignored) {
      ShardedOptions options;
      options.ignored = std::move(ignored);
      Layers model;
      make_strategy(strategy, context, options)->prepare(model.ptr());
    };
    expect_facts(message_of<UsageError>([&] { prepare("zero3", {"other"}); }), {"'other'", "ignored"});
    expect_facts(message_of<UsageError>([&] { prepare("planned", {"input.bias"}); }),
                 {"planned", "'input.bias'", "zero3"});
    std::vector<std::string> all;
    Layers model;
    for (const ModelTensor& parameter : tensors_of(*model).parameters) all.push_back(parameter.name);
    expect_facts(message_of<UsageError>([&] { prepare("zero2", all); }), {"all parameters", "ignored"});
    const std::string name = context.rank() == 0 ? "input.bias" : "output.bias";
    expect_facts(message_of<MismatchError>([&] { prepare("zero1", {name}); }), {"input.bias", "output.bias"});
  });
}

}  // namespace
}  // namespace rondo::testing::ignored_test
