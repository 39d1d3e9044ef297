// Strategies follow the traits of an engine, including engines that a user has registered.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "rondo/backend/gloo/factory.h"
#include "rondo/backend/registry.h"
#include "rondo/parallel/ddp/ddp.h"
#include "tests/parallel/sharded/layers.h"

namespace rondo::testing::foreign_engine_test {
namespace {

void register_gloo_as(const std::string& name, const EngineTraits& traits) {
  register_backend(
      name, [](const BackendRequest& request) { return make_backend("gloo", request); }, traits);
}

// Trains a model with two gradients of 80 KB and their biases.
std::size_t buckets_of_ddp(const std::string& engine) {
  std::size_t buckets = 0;
  run_ranks(2, engine, [&](Context& context) {
    torch::nn::Sequential model(torch::nn::Linear(200, 100), torch::nn::Linear(100, 200));
    fill_parameters(*model, 3);
    DistributedDataParallel ddp(*model, context.world());
    ddp.forward(model, at::ones({2, 200}) * (context.rank() + 1)).sum().backward();
    const at::Tensor gradient = model->parameters()[3].grad();
    EXPECT_TRUE(at::allclose(gradient, at::full({200}, 2.0F)));
    if (context.rank() == 0) buckets = ddp.last_backward().buckets.size();
  });
  return buckets;
}

TEST(ForeignEngine, ReducesInPlaceWithRegisteredMemory) {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  register_gloo_as("gloo that copies", {});
  register_gloo_as("gloo in place", {.registered_memory = true});
  EXPECT_EQ(buckets_of_ddp("gloo that copies"), 1U) << "everything is in the first bucket";
  EXPECT_EQ(buckets_of_ddp("gloo in place"), 3U) << "two large gradients, and the small ones";
}

// An engine that does not work in the background needs no queue with groups of its own.
TEST(ForeignEngine, GetsNoBackgroundWorkWithoutSupport) {
  if (!have_gloo()) GTEST_SKIP() << "this build has no Gloo";
  register_gloo_as("gloo in the background", {});
  register_gloo_as("gloo in the foreground", {.progresses_in_background = false});
  const std::vector<at::Tensor> expected = train_alone({});
  std::map<std::string, std::string> next_group;
  for (const std::string engine : {"gloo in the background", "gloo in the foreground"}) {
    run_ranks(2, engine, [&](Context& context) {
      ShardedOptions options;
      options.find_unused_parameters = true;
      const auto strategy = all_strategies().make("zero2", context, options);
      Layers model;
      const auto prepared = strategy->prepare(model.ptr());
      const std::string name = context.new_group({0, 1}).name();
      if (context.rank() == 0) next_group[engine] = name;
      const auto optimizer = make_adamw(prepared->module());
      train_steps(context, *prepared, model, *optimizer, {});
      prepared->unshard();
      EXPECT_LT(largest_difference(model->parameters(), expected), kTolerance) << engine;
    });
  }
  EXPECT_EQ(next_group["gloo in the foreground"], "group 1");
  EXPECT_EQ(next_group["gloo in the background"], "group 3");
}

}  // namespace
}  // namespace rondo::testing::foreign_engine_test
