// Checkpoints of trainings with parameters and buffers that each rank has for itself: they omit these, and
// loading does not change them.
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include "rondo/backend/collectives.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/nn/unit.h"
#include "rondo/strategy/summon_full_params.h"
#include "rondo/train/save_training.h"
#include "rondo/train/trainer.h"
#include "tests/backend/ranks.h"
#include "tests/parallel/strategy_told.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::ignored_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using testing::Digits;
using testing::run_ranks;

// A model with a parameter and a buffer of the rank's own; their shape differs between ranks, or is the same.
struct OwnPartsImpl : torch::nn::Module {
  OwnPartsImpl(int rank, bool same_shapes) {
    const std::int64_t size = same_shapes ? 2 : rank + 1;
    hidden = register_module("hidden", Unit<torch::nn::Linear>(8, 8));
    output = register_module("output", Unit<torch::nn::Linear>(8, 8));
    own = register_parameter("own", at::full({size}, 1.0 + rank));
    seen = register_buffer("seen", at::full({size}, 10.0 + rank));
    const at::NoGradGuard no_gradients;
    float value = 0;
    for (torch::nn::LinearImpl* linear : {hidden.get(), output.get()}) {
      for (at::Tensor& parameter : linear->parameters()) {
        parameter.copy_(torch::linspace(value, value + 0.3F, parameter.numel()).view_as(parameter));
        value += 0.3F;
      }
    }
  }
  at::Tensor forward(const at::Tensor& x) { return output(torch::tanh(hidden(x))) * own.mean(); }
  Unit<torch::nn::Linear> hidden{nullptr}, output{nullptr};
  at::Tensor own, seen;
};
TORCH_MODULE(OwnParts);

std::unique_ptr<Strategy> ignoring(const std::string& name, const Context& context) {
  ShardedOptions options;
  options.ignored = {"own", "seen"};
  DdpOptions buckets;
  buckets.ignored = options.ignored;
  return testing::make_strategy(name, context, options, buckets);
}

void expect_only_shared(const fs::path& checkpoint, const std::string& what) {
  for (const char* kind : {"model", "optimizer"}) {
    const StoredTensors stored = stored_tensors(find_checkpoint(checkpoint), kind);
    EXPECT_FALSE(stored.empty()) << what << " " << kind;
    for (const StoredTensor& tensor : stored) {
      EXPECT_EQ(tensor.name.find("own"), std::string::npos) << what << " " << tensor.name;
      EXPECT_EQ(tensor.name.find("seen"), std::string::npos) << what << " " << tensor.name;
    }
  }
}

std::vector<at::Tensor> shared_weights(OwnParts& model) {
  std::vector<at::Tensor> copies;
  for (torch::nn::Module* part : {static_cast<torch::nn::Module*>(model->hidden.get()),
                                  static_cast<torch::nn::Module*>(model->output.get())}) {
    for (const at::Tensor& parameter : part->parameters()) copies.push_back(parameter.detach().clone());
  }
  return copies;
}

void expect_equal(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& wanted,
                  const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << what << " " << i;
}

TEST(IgnoredParametersInCheckpoints, ATrainerSavesAndResumesWithoutThem) {
  for (const char* const strategy_name : {"ddp", "zero3"}) {
    for (const bool same_shapes : {false, true}) {
      for (const bool in_parts : {false, true}) {
        const std::string what = std::string(strategy_name) +
                                 (same_shapes ? ", one shape" : ", other shapes") +
                                 (in_parts ? ", in parts" : ", whole");
        const TemporaryDirectory directory;
        run_ranks(2, "native", [&](Context& context) {
          const auto strategy = ignoring(strategy_name, context);
          const auto data = std::make_shared<Digits>(32);
          OwnParts model(context.rank(), same_shapes);
          Trainer trainer(*strategy, model, testing::adamw(), cross_entropy);
          trainer.fit(data, {.steps = 2, .batch_size = 4});
          trainer.save(directory.path(), {.in_parts = in_parts});
          barrier(context.world());
          expect_only_shared(directory.path(), what);
          // Under ddp the optimizer updates them too.
          const at::Tensor own_when_saved = model->own.detach().clone();
          trainer.fit(data, {.steps = 4, .batch_size = 4});
          trainer.evaluate(*data);
          const std::vector<at::Tensor> uninterrupted = shared_weights(model);

          OwnParts other(context.rank(), same_shapes);
          Trainer resumed(*strategy, other, testing::adamw(), cross_entropy);
          const at::Tensor own_before = other->own.detach().clone();
          resumed.restore(directory.path());
          EXPECT_TRUE(at::equal(other->own, own_before)) << what << ", rank " << context.rank();
          EXPECT_TRUE(at::equal(other->seen, at::full_like(other->seen, 10.0 + context.rank()))) << what;
          {
            // A program restores its own values itself.
            const at::NoGradGuard no_gradients;
            other->own.copy_(own_when_saved);
          }
          EXPECT_EQ(resumed.position().step, 2);
          resumed.fit(data, {.steps = 4, .batch_size = 4});
          resumed.evaluate(*data);
          if (std::string(strategy_name) == "zero3") {
            expect_equal(shared_weights(other), uninterrupted, what);
          } else {
            EXPECT_FALSE(at::equal(other->own, own_when_saved)) << what << ": ddp's optimizer trains it";
          }
          barrier(context.world());
        });
      }
    }
  }
}

TEST(IgnoredParametersInCheckpoints, CustomLoopResumesItsState) {
  for (const char* const strategy_name : {"ddp", "zero3"}) {
    const TemporaryDirectory directory;
    run_ranks(2, "native", [&](Context& context) {
      const auto strategy = ignoring(strategy_name, context);
      OwnParts model(context.rank(), false);
      const auto prepared = strategy->prepare(model.ptr());
      torch::optim::AdamW optimizer(prepared->module().parameters(), torch::optim::AdamWOptions(0.05));
      const OwnTraining training{context, *model, *prepared, optimizer};
      const auto step = [&](std::int64_t number) {
        optimizer.zero_grad();
        prepared->begin_step({.samples = 2, .gradients_are_read = false});
        model(torch::linspace(-1, 1, 16).view({2, 8}) * static_cast<float>(number + context.rank() + 1))
            .square()
            .sum()
            .backward();
        prepared->finish_backward();
        prepared->step(optimizer);
      };
      for (int i = 0; i < 2; ++i) step(i);
      save(directory.path(), training, 2);
      barrier(context.world());
      expect_only_shared(directory.path(), strategy_name);
      std::vector<at::Tensor> saved;
      {
        const SummonFullParams full(*prepared);
        saved = shared_weights(model);
      }
      step(7);
      const at::Tensor own = model->own.detach().clone();
      const std::size_t states = optimizer.state().size();
      EXPECT_EQ(load(directory.path(), training).step, 2);
      EXPECT_TRUE(at::equal(model->own, own)) << strategy_name;
      EXPECT_EQ(optimizer.state().size(), states) << "what it remembers of the rank's own stays";
      {
        const SummonFullParams full(*prepared);
        expect_equal(shared_weights(model), saved, strategy_name);
      }
      step(2);
      barrier(context.world());
    });
  }
}

// A rank's own values stay when the others move to a new world.
TEST(IgnoredParametersInCheckpoints, StayInANewWorld) {
  run_ranks(2, "native", [](Context& context) {
    const auto strategy = ignoring("ddp", context);
    const auto data = std::make_shared<Digits>(32);
    OwnParts model(context.rank(), false);
    Trainer trainer(*strategy, model, testing::adamw(), cross_entropy);
    trainer.fit(data, {.steps = 2, .batch_size = 4});
    const std::vector<at::Tensor> before = shared_weights(model);
    const at::Tensor own = model->own.detach().clone();
    trainer.rebuild(context);
    EXPECT_TRUE(at::equal(model->own, own)) << "rank " << context.rank();
    expect_equal(shared_weights(model), before, "rebuilt");
    trainer.fit(data, {.steps = 3, .batch_size = 4});
    barrier(context.world());
  });
}

}  // namespace
}  // namespace rondo::ignored_checkpoint_test
