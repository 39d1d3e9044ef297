// Sharded units with gradients encoded by a codec. By default zero1 and zero3 train between hosts, too;
// RONDO_EQUALITY=all (`make equality`) adds the other strategies.
#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/collective/codec/codec.h"
#include "tests/all_combinations.h"
#include "tests/parallel/sharded/layers.h"

namespace rondo::testing::sharded_codec_test {
namespace {

struct Case {
  std::string strategy;
  std::string backend;
  int ranks;
  std::vector<int> hosts = {};
  int shard_ranks = 0;
  Bytes segment_bytes = Bytes{512};  // several segments per unit
  std::int64_t width = 20;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.strategy << " " << c.backend << " " << c.ranks << " ranks, " << c.shard_ranks << " share";
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string strategy : {"zero1", "zero2", "zero3", "zero3_keep", "random"}) {
    all.push_back({strategy, "native", 3});
    if (tests::all_combinations() || strategy == "zero1" || strategy == "zero3")
      all.push_back({strategy, "hierarchical(native, gloo)", 3, {0, 1, 2}});
  }
  all.push_back({"zero3", "gloo", 2});
  all.push_back({"hsdp", "native", 4, {}, 2});
  all.push_back({"hsdp", "hierarchical(native, gloo)", 4, {0, 0, 1, 1}});
  // Replicas of shards that are large enough for sums to be encoded, too.
  all.push_back({"hsdp", "native", 3, {}, 1, {}, 80});
  all.push_back({"hsdp", "hierarchical(native, gloo)", 3, {0, 1, 2}, 1, {}, 80});
  return all;
}

// Returns the float32 parameters, whole on every rank, after training on the ranks' shares of joint batches.
std::vector<at::Tensor> train(Context& context, const Case& c, const std::string& codec, int steps = 6) {
  ShardedOptions options;
  options.find_unused_parameters = true;
  options.strategy_seed = 7;
  options.segment_bytes = c.segment_bytes;
  options.shard_ranks = c.shard_ranks;
  options.codec = codec;
  const auto strategy = make_strategy(c.strategy, context, options);
  Layers model(c.width);
  model->to(at::kFloat);
  const auto prepared = strategy->prepare(model.ptr());
  const auto optimizer = make_adamw(prepared->module());
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    const Batch batch = my_rows(joint_batch(12, static_cast<std::uint64_t>(step)), context.world());
    prepared->begin_step({.samples = batch.input.size(0), .gradients_are_read = step % 2 == 0});
    mean_loss(model(batch.input.to(at::kFloat)).to(at::kDouble), batch).backward();
    prepared->finish_backward();
    prepared->step(*optimizer);
  }
  prepared->unshard();
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : model->parameters()) result.push_back(parameter.detach().clone());
  barrier(context.world());
  return result;
}

class ShardedCodec : public ::testing::TestWithParam<Case> {
 protected:
  static void run(const std::function<void(Context&)>& body) {
    run_ranks(GetParam().ranks, GetParam().backend, body, std::chrono::seconds(60), GetParam().hosts);
  }
};

INSTANTIATE_TEST_SUITE_P(Strategies, ShardedCodec, ::testing::ValuesIn(cases()));

TEST_P(ShardedCodec, StaysCloseAndTheSameOnAllRanks) {
  // A codec that loses nothing trains as without one.
  collective::register_codec("exact", [](std::string_view) { return collective::make_codec("none"); });
  run([](Context& context) {
    const auto without = train(context, GetParam(), "none");
    EXPECT_LT(largest_difference(train(context, GetParam(), "exact"), without), 1e-5) << context.rank();
    for (const char* codec : {"bfloat16", "int8", "top_k:0.5"}) {
      const auto with = train(context, GetParam(), codec);
      // AdamW changes each value by 0.01 per step.
      EXPECT_LT(largest_difference(with, without), 0.13) << codec;
      EXPECT_GT(largest_difference(with, without), 0) << codec;
      for (const at::Tensor& parameter : with) {
        const at::Tensor mine = parameter.contiguous();
        for (const at::Tensor& other : all_gather(mine, context.world())) EXPECT_TRUE(at::equal(other, mine));
      }
    }
  });
}

TEST(ShardedCodecNames, HooksOfWholeGradientsAreRefused) {
  run_ranks(2, "native", [](Context& context) {
    for (const char* strategy : {"zero1", "zero3", "hsdp", "random", "tpu"}) {
      for (const char* codec : {"power_sgd", "fp16_compress", "int7"}) {
        expect_facts(message_of<UsageError>([&] {
                       all_strategies().make(strategy, context, {{"codec", codec}});
                     }),
                     {codec, strategy, "int8", "top_k"});
      }
      expect_facts(message_of<UsageError>([&] {
                     all_strategies().make(strategy, context, {{"codec", "top_k:2"}});
                   }),
                   {"top_k"});
    }
  });
}

// Gradients that are not float32 are reduced without a codec.
TEST(ShardedCodecNames, DoubleGradientsTravelAsTheyAre) {
  run_ranks(2, "native", [](Context& context) {
    ShardedOptions options;
    options.find_unused_parameters = true;
    options.codec = "top_k:0.01";
    EXPECT_LT(largest_difference(train_on_ranks(context, "zero3", options, {}), train_alone({})), kTolerance);
    const auto strategy = make_strategy("zero3", context, options);
    EXPECT_TRUE(strategy->prepare(Layers(7).ptr())->communication_state().empty());
  });
}

}  // namespace
}  // namespace rondo::testing::sharded_codec_test
