// Layers divided among ranks compute the same as whole ones, forward and backward; errors name sizes that
// cannot be divided.
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/parallel_communication.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/tensor_parallel/parallelize.h"
#include "rondo/nn/tensor_parallel/ring_attention.h"
#include "tests/errors.h"
#include "tests/parallel/ranks.h"

namespace rondo::tensor_parallel_test {
namespace {

using testing::expect_facts;
using testing::fill_parameters;
using testing::largest_difference;
using testing::message_of;
using testing::random_tensor;
using testing::run_ranks;

constexpr double kRounding = 1e-11;

// A user's module: two layers of its own, a libtorch Sequential, a norm.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t inside = 8) {
    up = register_module("up", ParallelLinear(6, inside));
    down = register_module("down", ParallelLinear(inside, 6));
    norm = register_module("norm", ParallelLayerNorm(torch::nn::LayerNormOptions({6})));
    tail = register_module(
        "tail", torch::nn::Sequential(torch::nn::Linear(6, 12), torch::nn::Tanh(), torch::nn::Linear(12, 4)));
    to(at::kDouble);
    fill_parameters(*this, 3);
  }
  at::Tensor forward(const at::Tensor& input) {
    return tail->forward(norm(input + down(torch::tanh(up(input)))));
  }
  ParallelLinear up{nullptr}, down{nullptr};
  ParallelLayerNorm norm{nullptr};
  torch::nn::Sequential tail{nullptr};
};
TORCH_MODULE(Net);

const ParallelRules kNetRules{.rules = {{"up", ParallelStyle::column},
                                        {"down", ParallelStyle::row},
                                        {"tail.0", ParallelStyle::column},
                                        {"tail.2", ParallelStyle::row}}};

// Returns the whole gradient of a parameter that is divided among ranks as `division` describes.
at::Tensor whole_gradient(const at::Tensor& parameter, const Division& division, const Group& group) {
  const Shard* const address = division.find(parameter);
  if (address == nullptr) return parameter.grad();
  at::Tensor whole = at::zeros(address->global_sizes, parameter.options().requires_grad(false));
  Shard own = *address;
  own.local = parameter.grad();
  for (const Box& box : boxes_of(own)) {
    at::Tensor place = whole;
    for (std::size_t d = 0; d < box.sizes.size(); ++d)
      place = place.narrow(static_cast<std::int64_t>(d), box.offsets[d], box.sizes[d]);
    place.copy_(view_of(own, box));
  }
  all_reduce(whole, group);
  return whole;
}

void expect_as_one_process(int ranks, const std::string& engine) {
  Net whole;
  const at::Tensor input = random_tensor({5, 6}, 1), target = random_tensor({5, 4}, 2);
  const at::Tensor of_whole = input.clone().requires_grad_();
  const at::Tensor expected = whole(of_whole);
  torch::mse_loss(expected, target).backward();
  run_ranks(engine, ranks, [&](const Group& group) {
    Net net;
    const Division division = parallelize(*net, kNetRules, group);
    EXPECT_EQ(net->up->weight.size(0), 8 / group.size());
    EXPECT_EQ(net->down->weight.size(1), 8 / group.size());
    EXPECT_FALSE(division.divided_outputs());
    const at::Tensor own = input.clone().requires_grad_();
    const at::Tensor output = net(own);
    torch::mse_loss(output, target).backward();
    EXPECT_LT(largest_difference(output, expected), kRounding);
    EXPECT_LT(largest_difference(own.grad(), of_whole.grad()), kRounding);
    const auto parameters = net->named_parameters();
    for (const auto& entry : whole->named_parameters()) {
      const at::Tensor gradient = whole_gradient(parameters[entry.key()], division, group);
      EXPECT_LT(largest_difference(gradient, entry.value().grad()), kRounding) << entry.key();
    }
  });
}

TEST(TensorParallel, ModuleWithPatternsEqualsOneProcess) {
  for (const std::string& engine : testing::engines()) {
    for (const int ranks : {1, 2, 4}) expect_as_one_process(ranks, engine);
  }
}

TEST(TensorParallel, ADividedSequenceIsAsOnOneProcess) {
  // [samples, length, width]: the residual stream and the norm see a part of the length.
  Net whole;
  const at::Tensor input = random_tensor({3, 4, 6}, 1), target = random_tensor({3, 4, 4}, 2);
  const at::Tensor expected = whole(input);
  torch::mse_loss(expected, target).backward();
  run_ranks("native", 2, [&](const Group& group) {
    ParallelRules rules = kNetRules;
    rules.sequence = true;
    rules.rules.push_back({"norm", ParallelStyle::sequence});
    Net net;
    const Division division = parallelize(*net, rules, group);
    const at::Tensor own = net(own_part(input, 1, group));
    EXPECT_EQ(own.size(1), 2);
    torch::mse_loss(gather_from_ranks(own, 1, group), target).backward();
    const auto parameters = net->named_parameters();
    for (const auto& entry : whole->named_parameters()) {
      const at::Tensor gradient = whole_gradient(parameters[entry.key()], division, group);
      EXPECT_LT(largest_difference(gradient, entry.value().grad()), kRounding) << entry.key();
    }
  });
}

TEST(TensorParallel, BlocksOfAProjectionAreDividedEach) {
  run_ranks("native", 2, [&](const Group& group) {
    ParallelLinear linear(torch::nn::LinearOptions(2, 12), /*blocks=*/3);
    fill_parameters(*linear, 1);
    const at::Tensor whole = linear->weight.detach().clone();
    Division division(group, /*sequence=*/false);
    linear->divide(ParallelStyle::column, division, "qkv");
    const std::int64_t first = 2 * group.rank();
    const at::Tensor expected =
        at::cat({whole.narrow(0, first, 2), whole.narrow(0, 4 + first, 2), whole.narrow(0, 8 + first, 2)});
    EXPECT_TRUE(at::equal(linear->weight.detach(), expected));
    EXPECT_EQ(division.find(linear->weight)->blocks, 3);
  });
}

TEST(TensorParallel, VocabularyEmbeddingAndCrossEntropyEqualOneProcess) {
  const at::Tensor tokens = at::tensor({0, 3, 7, 5, 6, 6, 1, 0}, at::kLong).view({2, 4});
  at::Tensor target = at::tensor({3, 7, 5, 2, 6, 1, 0, 4}, at::kLong).view({2, 4});
  target[1][1] = kIgnoredTarget;
  const auto made = [] {
    ParallelEmbedding embedding(torch::nn::EmbeddingOptions(8, 6).padding_idx(6));
    embedding->to(at::kDouble);
    fill_parameters(*embedding, 9);
    return embedding;
  };
  ParallelEmbedding whole = made();
  const Loss expected = cross_entropy(whole->logits(torch::tanh(whole(tokens))), target);
  expected.mean.backward();
  for (const int ranks : {2, 4}) {
    run_ranks("native", ranks, [&](const Group& group) {
      ParallelEmbedding embedding = made();
      Division division(group, /*sequence=*/false);
      embedding->divide(ParallelStyle::vocabulary, division, "wte");
      const at::Tensor logits = embedding->logits(torch::tanh(embedding(tokens)));
      EXPECT_EQ(logits.size(-1), 8 / group.size());
      const Loss loss = LossFunction(cross_entropy).of_divided_classes(group)({logits}, {target}, 2);
      EXPECT_EQ(loss.predictions, 7);
      EXPECT_NEAR(loss.mean.item<double>(), expected.mean.item<double>(), kRounding);
      loss.mean.backward();
      EXPECT_LT(largest_difference(whole_gradient(embedding->weight, division, group), whole->weight.grad()),
                kRounding);
    });
  }
}

TEST(TensorParallel, AnyLossOfDividedClassesSeesThemAll) {
  const at::Tensor logits = random_tensor({3, 8}, 1), target = random_tensor({3, 8}, 2);
  run_ranks("native", 2, [&](const Group& group) {
    const at::Tensor own = own_part(logits, 1, group).requires_grad_();
    const Loss loss = make_loss("mse").of_divided_classes(group)({own}, {target}, 3);
    EXPECT_NEAR(loss.mean.item<double>(), torch::mse_loss(logits, target).item<double>(), kRounding);
    loss.mean.backward();
    EXPECT_LT(largest_difference(own.grad(), own_part((logits - target) * (2.0 / 24), 1, group)), kRounding);
  });
}

TEST(TensorParallel, DropoutOfAPartMatchesTheFullTensor) {
  const SampleScope scope({.seed = 5, .step = 2, .indices = {4, 11, 7}});
  SampleDropout whole(0.4), part(0.4);
  const at::Tensor input = at::ones({3, 6, 50});
  const at::Tensor expected = whole(input);
  part->set_parts({2}, 3);
  EXPECT_TRUE(at::equal(part(at::ones({3, 2, 50})), expected.narrow(1, 4, 2)));
  part->set_parts({0, 5}, 6);
  EXPECT_TRUE(at::equal(part(at::ones({3, 2, 50})),
                        at::cat({expected.narrow(1, 0, 1), expected.narrow(1, 5, 1)}, 1)));
}

TEST(TensorParallel, RingAttentionIsThatOfTheWholeSequence) {
  for (const bool causal : {true, false}) {
    std::vector<at::Tensor> whole;  // query, key and value: [samples, heads, length, size]
    for (const std::uint64_t seed : {1, 2, 3})
      whole.push_back(random_tensor({2, 3, 24, 5}, seed).requires_grad_());
    const at::Tensor factors = random_tensor({2, 3, 24, 5}, 4);
    const at::Tensor expected =
        at::scaled_dot_product_attention(whole[0], whole[1], whole[2], {}, 0.0, causal);
    (expected * factors).sum().backward();
    for (const int ranks : {2, 3, 4}) {
      run_ranks("native", ranks, [&](const Group& group) {
        std::vector<at::Tensor> own;
        for (const at::Tensor& tensor : whole)
          own.push_back(own_sequence(tensor.detach(), 2, group).clone().requires_grad_());
        const at::Tensor output = ring_attention(own[0], own[1], own[2], causal, group);
        EXPECT_LT(largest_difference(whole_sequence(output.detach(), 2, group), expected), kRounding);
        (output * own_sequence(factors, 2, group)).sum().backward();
        for (std::size_t i = 0; i < own.size(); ++i)
          EXPECT_LT(largest_difference(whole_sequence(own[i].grad(), 2, group), whole[i].grad()), kRounding);
      });
    }
  }
}

TEST(TensorParallel, RingAttentionLosesWhatTheWholeSequenceLoses) {
  std::vector<at::Tensor> whole;
  for (const std::uint64_t seed : {1, 2, 3})
    whole.push_back(random_tensor({2, 4, 16, 5}, seed).requires_grad_());
  const at::Tensor factors = random_tensor({2, 4, 16, 5}, 4);
  const auto scope_of = [] { return SampleScope({.seed = 3, .step = 5, .indices = {7, 11}}); };
  SampleDropout dropout(0.4);
  const SampleScope scope = scope_of();
  at::Tensor scores = at::matmul(whole[0], whole[1].transpose(-2, -1)) / std::sqrt(5.0);
  scores = scores.masked_fill(at::ones({16, 16}, at::kBool).triu(1), -INFINITY);
  const at::Tensor expected = at::matmul(dropout->forward(scores.softmax(-1)), whole[2]);
  (expected * factors).sum().backward();
  // Without and with division of heads among other ranks: ranks 0 and 2 have the first half of the heads.
  for (const int heads : {1, 2}) {
    run_ranks(2 * heads, "native", [&](Context& context) {
      const Context meshed = context.mesh({{"context", 2}, {"tensor", heads}});
      const Group& group = meshed.group("context");
      const int part = meshed.rank() % heads;
      SampleDropout own_dropout(0.4);
      own_dropout->set_parts({part}, heads);
      const auto own_of = [&](const at::Tensor& tensor) {
        return own_sequence(tensor.detach().chunk(heads, 1)[static_cast<std::size_t>(part)], 2, group);
      };
      std::vector<at::Tensor> own;
      for (const at::Tensor& tensor : whole) own.push_back(own_of(tensor).clone().requires_grad_());
      const SampleScope own_scope = scope_of();
      const at::Tensor output = ring_attention(own[0], own[1], own[2], /*causal=*/true, group, own_dropout);
      EXPECT_LT(largest_difference(output, own_of(expected)), kRounding);
      (output * own_of(factors)).sum().backward();
      for (std::size_t i = 0; i < own.size(); ++i)
        EXPECT_LT(largest_difference(own[i].grad(), own_of(whole[i].grad())), kRounding);
    });
  }
}

TEST(TensorParallel, WhatCannotBeDividedNamesBothNumbers) {
  run_ranks("native", 4, [&](const Group& group) {
    const auto refused = [&](const ParallelRules& rules, auto net) {
      return message_of<UsageError>([&] { parallelize(*net, rules, group); });
    };
    expect_facts(refused(kNetRules, Net(10)), {"'up'", "10", "4"});
    expect_facts(refused({.rules = {{"*.ip", ParallelStyle::column}}}, Net()),
                 {"'*.ip'", "column", "up.weight"});
    expect_facts(refused({.rules = {{"up", ParallelStyle::heads}}}, Net()), {"'up'", "heads", "column"});
    expect_facts(refused({.rules = {{"tail.1", ParallelStyle::column}}}, Net()),
                 {"'tail.1'", "ParallelLinear"});
    torch::nn::Sequential with_dropout(torch::nn::Linear(4, 4), torch::nn::Dropout(0.1));
    expect_facts(refused({.rules = {{"0", ParallelStyle::column}}}, with_dropout), {"'1'", "SampleDropout"});
    const at::Tensor target = at::tensor({9}, at::kLong);
    expect_facts(message_of<UsageError>([&] {
                   cross_entropy_of_parts(at::zeros({1, 2}), target, group);
                 }),
                 {"9", "8"});
    expect_facts(message_of<UsageError>([&] {
                   own_sequence(at::zeros({2, 12}), 1, group);
                 }),
                 {"12", "4", "8"});
    expect_facts(message_of<UsageError>([&] { own_part(at::zeros({2, 6}), 1, group); }), {"6", "4"});
  });
}

TEST(TensorParallel, PatternsFitPaths) {
  EXPECT_TRUE(fits_pattern("h.0.mlp.up", "*.up"));
  EXPECT_TRUE(fits_pattern("h.0.mlp.up", "h.*.mlp.*"));
  EXPECT_TRUE(fits_pattern("up", "up"));
  EXPECT_TRUE(fits_pattern("a.up.b.up", "*up"));
  EXPECT_FALSE(fits_pattern("up", "*.up"));
  EXPECT_FALSE(fits_pattern("h.0.mlp.up.x", "*.up"));
  EXPECT_EQ(parse_parallel_style("row", "here"), ParallelStyle::row);
  expect_facts(message_of<UsageError>([] { parse_parallel_style("rows", "here"); }),
               {"here", "'rows'", "row"});
}

}  // namespace
}  // namespace rondo::tensor_parallel_test
