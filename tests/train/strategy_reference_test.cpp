#include "rondo/strategy/strategy_reference.h"

#include <gtest/gtest.h>

#include <memory>
#include <type_traits>

#include "rondo/base/error.h"
#include "rondo/strategy/distributed_variable.h"
#include "rondo/strategy/one_device.h"
#include "rondo/train/trainer.h"
#include "tests/backend/ranks.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::strategy_reference_test {
namespace {

using testing::adamw;
using testing::Digits;
using testing::small_model;

static_assert(std::is_constructible_v<Trainer, DefaultStrategy&, Model>);
static_assert(!std::is_constructible_v<Trainer, DefaultStrategy, Model>);
static_assert(!std::is_constructible_v<DistributedVariable, DefaultStrategy, at::Tensor>);
static_assert(!std::is_copy_constructible_v<DefaultStrategy>);

void expect_ended(const char* holder, const std::function<void()>& call) {
  testing::expect_facts(testing::message_of<UsageError>(call), {"strategy", holder, "ended", "keep it"});
}

void expect_calls_to_say_so(Trainer& trainer) {
  const auto data = std::make_shared<Digits>(100);
  const TemporaryDirectory directory;
  const auto says = [](const std::function<void()>& call) { expect_ended("Trainer", call); };
  says([&] { trainer.fit(data, {}); });
  says([&] { trainer.evaluate(*data); });
  says([&] { trainer.predict(*data); });
  says([&] { trainer.train_on_batch(data->get(std::vector<std::int64_t>{0, 1})); });
  says([&] { trainer.save(directory.path(), 1); });
  says([&] { trainer.restore(directory.path()); });
  says([&] { trainer.strategy(); });
  EXPECT_FALSE(trainer.model().module->parameters().empty());
}

TEST(StrategyReference, OfATrainerDetectsATemporaryStrategy) {
  testing::run_ranks(1, "native", [](Context& context) {
    for (const std::string name : {"one_device", "ddp", "zero3"}) {
      Trainer trainer(*all_strategies().make(name, context), small_model(), adamw(), cross_entropy);
      expect_calls_to_say_so(trainer);
    }
    for (const std::string name : {"mirrored", "data_parallel"}) {
      Trainer trainer(*all_strategies().make(name, context, {{"replicas", "2"}}),
                      [] { return small_model(); });
      trainer.compile(adamw());
      expect_calls_to_say_so(trainer);
    }
  });
}

TEST(StrategyReference, OfAVariableDetectsATemporaryStrategy) {
  testing::run_ranks(1, "native", [](Context& context) {
    DistributedVariable variable(*all_strategies().make("one_device", context), torch::ones({1}));
    const auto says = [](const std::function<void()>& call) { expect_ended("DistributedVariable", call); };
    says([&] { variable.value(); });
    says([&] { variable.assign(torch::ones({1})); });
    says([&] { variable.assign_add(torch::ones({1})); });
    EXPECT_EQ(variable.copies().only().item<double>(), 1.0);
  });
}

}  // namespace
}  // namespace rondo::strategy_reference_test
