// Compares, bit for bit, a loop of prepare, forward, backward and step with a loop that also calls
// begin_step() and finish_backward(), under every strategy with one replica per process.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "tests/parallel/ranks.h"
#include "tests/parallel/sharded/layers.h"

namespace rondo::short_loop_test {
namespace {

using testing::Batch;
using testing::joint_batch;
using testing::mean_loss;
using testing::my_rows;
using testing::Residual;
using testing::run_ranks;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    input = register_module("input", torch::nn::Linear(6, 5));
    middle = register_module("middle", Unit<Residual>(5));
    output = register_module("output", torch::nn::Linear(5, 4));
    to(at::kDouble);
    testing::fill_parameters(*this, 7);
  }
  at::Tensor forward(const at::Tensor& x) { return output(middle(torch::tanh(input(x)))); }
  torch::nn::Linear input{nullptr}, output{nullptr};
  Unit<Residual> middle{nullptr};
};
TORCH_MODULE(Net);

// The calls of a step.
enum class Loop { shortest, with_finish, written_out };

std::vector<at::Tensor> train(Context& context, const std::string& strategy_name, Loop loop) {
  const auto strategy = all_strategies().make(strategy_name, context);
  Net model;
  const auto prepared = strategy->prepare(model.ptr());
  torch::optim::SGD optimizer(prepared->module().parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (std::uint64_t step = 0; step < 5; ++step) {
    const Batch batch = my_rows(joint_batch(8, step), context.world());
    optimizer.zero_grad();
    if (loop == Loop::written_out) {
      prepared->begin_step({.samples = batch.input.size(0)});
      mean_loss(model(batch.input), batch).backward();
      prepared->finish_backward();
    } else {
      if (step % 2 == 0) prepared->set_local_samples(batch.input.size(0));
      mean_loss(prepared->forward(model, batch.input), batch).backward();
      if (loop == Loop::with_finish) prepared->finish_backward();
    }
    if (step == 3) prepared->clip_gradients(0.1);
    prepared->step(optimizer);
  }
  prepared->unshard();
  std::vector<at::Tensor> weights;
  for (const at::Tensor& parameter : model->parameters()) weights.push_back(parameter.detach().clone());
  barrier(context.world());
  return weights;
}

TEST(ShortLoop, EqualsTheLoopWrittenOut) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 1}}) {
    const std::string engine = hosts.back() == 0 ? "native" : "hierarchical(native, gloo)";
    run_ranks(
        2, engine,
        [&](Context& context) {
          for (const char* strategy :
               {"ddp", "tpu", "zero1", "zero2", "zero3", "zero3_keep", "hsdp", "random", "local_sgd"}) {
            SCOPED_TRACE(str(strategy, " over ", engine));
            const std::vector<at::Tensor> expected = train(context, strategy, Loop::written_out);
            for (const Loop loop : {Loop::shortest, Loop::with_finish})
              EXPECT_EQ(testing::largest_difference(train(context, strategy, loop), expected), 0);
          }
        },
        std::chrono::seconds(60), hosts);
  }
  run_ranks(1, "native", [&](Context& context) {
    EXPECT_EQ(testing::largest_difference(train(context, "one_device", Loop::shortest),
                                          train(context, "one_device", Loop::written_out)),
              0);
  });
}

TEST(ShortLoop, NamesAStepThatIsForgotten) {
  run_ranks(2, "native", [](Context& context) {
    for (const char* strategy_name : {"ddp", "zero2"}) {
      const auto strategy = all_strategies().make(strategy_name, context);
      Net model;
      const auto prepared = strategy->prepare(model.ptr());
      torch::optim::SGD optimizer(prepared->module().parameters(), 0.1);
      const Batch batch = my_rows(joint_batch(8, 0), context.world());
      mean_loss(prepared->forward(model, batch.input), batch).backward();
      testing::expect_facts(testing::message_of<UsageError>([&] { prepared->forward(model, batch.input); }),
                            {"step(optimizer)", "not optimizer.step()", "no_sync()", "finish_backward()"});
      // Two forward passes before one backward pass count as one pass.
      prepared->step(optimizer);
      optimizer.zero_grad();
      const at::Tensor first = prepared->forward(model, batch.input);
      mean_loss(first + prepared->forward(model, batch.input), batch).backward();
      prepared->step(optimizer);
      barrier(context.world());
    }
  });
}

}  // namespace
}  // namespace rondo::short_loop_test
