// Tests of mixture of experts: routing, sums compared with a plain loop over tokens, and distributed experts
// compared with one process.
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/types.h>

#include <cmath>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/nn/activation_checkpoint.h"
#include "rondo/nn/experts/mixture_of_experts.h"
#include "rondo/nn/experts/routing.h"
#include "rondo/nn/sample_dropout.h"
#include "tests/parallel/ranks.h"

namespace rondo::experts_test {
namespace {

using testing::expect_facts;
using testing::fill_parameters;
using testing::largest_difference;
using testing::message_of;
using testing::random_tensor;
using testing::run_ranks;

std::vector<std::int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

using Numbers = std::vector<std::int64_t>;

TEST(Routing, TiesGoToTheLowestExpert) {
  const at::Tensor probabilities = torch::tensor({{0.25, 0.25, 0.25, 0.25}, {0.1, 0.4, 0.4, 0.1}});
  const Routing one = route(probabilities, 2, {.per_token = 1, .capacity_factor = 0});
  EXPECT_EQ(one.rows, (Numbers{1, 1, 0, 0}));
  EXPECT_EQ(one.first_choices, (Numbers{1, 1, 0, 0}));
  EXPECT_EQ(numbers(one.taken), (Numbers{0, 1}));
  const Routing two = route(probabilities, 2, {.per_token = 2, .capacity_factor = 0});
  EXPECT_EQ(two.rows, (Numbers{1, 2, 1, 0}));
  // Token 0 goes to experts 0 and 1, token 1 to 1 and 2; choices 2 and 3 are second choices.
  EXPECT_EQ(numbers(two.taken), (Numbers{0, 1, 2, 3}));
}

TEST(Routing, ExpertFillsItsCapacityInTokenOrder) {
  // Two groups of four tokens, two experts; all tokens choose expert 1.
  const at::Tensor probabilities = torch::tensor({0.1, 0.9}).expand({8, 2});
  const Routing routing = route(probabilities, 4, {.per_token = 1, .capacity_factor = 1.25});
  // Capacity: ceil(1.25 * 4 / 2) = 3 of each group.
  EXPECT_EQ(routing.rows, (Numbers{0, 6}));
  EXPECT_EQ(numbers(routing.taken), (Numbers{0, 1, 2, 4, 5, 6}));
  EXPECT_EQ(routing.first_choices, (Numbers{0, 8})) << "dropped tokens have chosen too";
  EXPECT_EQ(routing.choices, 8);
}

TEST(Routing, FirstChoicesComeBeforeSecondOnes) {
  // Tokens 0 and 1 choose expert 0 first and 1 second, token 2 the reverse; capacity is two.
  const at::Tensor probabilities = torch::tensor({{0.8, 0.2, 0.0}, {0.7, 0.3, 0.0}, {0.3, 0.7, 0.0}});
  const Routing routing = route(probabilities, 3, {.per_token = 2, .capacity_factor = 1});
  EXPECT_EQ(routing.rows, (Numbers{2, 2, 0}));
  // First choices fill expert 0; expert 1 has one and accepts one second choice: that of token 0.
  EXPECT_EQ(numbers(routing.taken), (Numbers{0, 1, 2, 3}));
}

TEST(Routing, PartAgreesWithTheFullBatch) {
  // Four tokens, two experts, capacity two: expert 0 accepts the first choices of tokens 0 and 1, expert 1
  // their second choices. All choices of the other two tokens are dropped.
  const at::Tensor probabilities = torch::tensor({0.9, 0.1}).expand({4, 2});
  const Routing whole = route(probabilities, 4, {.per_token = 2, .capacity_factor = 0.5});
  ASSERT_EQ(numbers(whole.taken), (Numbers{0, 1, 4, 5}));
  const Routing part = part_of_routing(whole, 4, torch::tensor({1, 3}, torch::kLong));
  EXPECT_EQ(numbers(part.taken), (Numbers{0, 2})) << "both choices of token 1, which is 0 here";
  EXPECT_EQ(part.rows, (Numbers{1, 1}));
  EXPECT_EQ(part.choices, 4);
  EXPECT_EQ(part.first_choices, (Numbers{4, 0})) << "of all tokens";
}

// A reference by definition, token by token.
struct Plain {
  at::Tensor output;
  double balance = 0;
};
Plain plain_mixture(MixtureOfExpertsImpl& layer, const at::Tensor& input) {
  const ExpertsConfig& config = layer.config();
  const auto parameters = layer.named_parameters();
  const auto of = [&](const char* name, std::int64_t expert) { return parameters[name][expert]; };
  const at::Tensor samples = input.dim() == 3 ? input : input.unsqueeze(0);
  const std::int64_t length = samples.size(1);
  const auto capacity = static_cast<std::int64_t>(
      std::ceil(config.capacity_factor * static_cast<double>(config.per_token * length) /
                static_cast<double>(config.experts)));
  std::vector<double> chosen(static_cast<std::size_t>(config.experts), 0), mean = chosen;
  at::Tensor output = at::zeros_like(samples);
  for (std::int64_t sample = 0; sample < samples.size(0); ++sample) {
    std::vector<std::int64_t> used(static_cast<std::size_t>(config.experts), 0);
    for (std::int64_t choice = 0; choice < config.per_token; ++choice) {
      for (std::int64_t token = 0; token < length; ++token) {
        const at::Tensor x = samples[sample][token];
        const at::Tensor p = at::softmax(at::mv(parameters["router.weight"], x), 0);
        std::vector<std::pair<double, std::int64_t>> ranking;
        for (std::int64_t e = 0; e < config.experts; ++e) ranking.emplace_back(-p[e].item<double>(), e);
        std::sort(ranking.begin(), ranking.end());
        if (choice == 0) {
          chosen[static_cast<std::size_t>(ranking[0].second)] += 1;
          for (std::int64_t e = 0; e < config.experts; ++e)
            mean[static_cast<std::size_t>(e)] += p[e].item<double>();
        }
        const std::int64_t expert = ranking[static_cast<std::size_t>(choice)].second;
        if (used[static_cast<std::size_t>(expert)]++ >= capacity && config.capacity_factor > 0) continue;
        double gate = -ranking[static_cast<std::size_t>(choice)].first;
        if (config.per_token == 2) gate /= -ranking[0].first - ranking[1].first;
        const at::Tensor inner =
            at::gelu(at::mv(of("experts.up.weight", expert), x) + of("experts.up.bias", expert), "tanh");
        output[sample][token] +=
            gate * (at::mv(of("experts.down.weight", expert), inner) + of("experts.down.bias", expert));
      }
    }
  }
  Plain plain{.output = output.view(input.sizes())};
  const auto tokens = static_cast<double>(samples.size(0) * length);
  for (std::size_t e = 0; e < chosen.size(); ++e)
    plain.balance += static_cast<double>(config.experts) * chosen[e] / tokens * mean[e] / tokens;
  return plain;
}

ExpertsConfig small(std::int64_t per_token, double capacity_factor) {
  return {.width = 6,
          .inner = 10,
          .experts = 4,
          .per_token = per_token,
          .capacity_factor = capacity_factor,
          .balance_loss = 0.1};
}

MixtureOfExperts filled(const ExpertsConfig& config) {
  MixtureOfExperts layer(config);
  layer->to(at::kDouble);
  fill_parameters(*layer, 3);
  return layer;
}

TEST(MixtureOfExperts, ComputesWhatAPlainLoopDoes) {
  for (const std::int64_t per_token : {1, 2}) {
    for (const double capacity : {0.0, 0.5, 1.0, 4.0}) {
      for (const at::Tensor& input : {random_tensor({3, 8, 6}, 5), random_tensor({9, 6}, 6)}) {
        MixtureOfExperts layer = filled(small(per_token, capacity));
        const Plain expected = plain_mixture(*layer, input);
        EXPECT_LT(largest_difference(layer->forward(input), expected.output), 1e-12)
            << per_token << " experts a token, capacity factor " << capacity;
        StepFigures figures;
        layer->take_figures(figures);
        EXPECT_NEAR(figures["balance_loss"].value(), 0.1 * expected.balance, 1e-12);
        EXPECT_EQ(figures["routed_tokens"].value(), static_cast<double>(per_token * input.numel() / 6));
        EXPECT_EQ(figures["dropped_tokens"].value() > 0, capacity == 0.5 || capacity == 1.0) << capacity;
      }
    }
  }
}

// Compares the gradient of the auxiliary loss with finite differences of the plain reference.
TEST(MixtureOfExperts, TheBalanceLossPullsOnTheRouter) {
  MixtureOfExperts layer = filled(small(1, 0));
  const at::Tensor input = random_tensor({2, 5, 6}, 8);
  const SampleScope scope({.loss_scale = 3});
  (layer->forward(input).sum() * 0).backward();
  const at::Tensor weight = layer->named_parameters()["router.weight"];
  const at::NoGradGuard no_gradient;
  for (const auto& place : {std::pair{0, 0}, {1, 4}, {3, 2}}) {
    const int row = place.first, column = place.second;
    constexpr double kStep = 1e-6;
    const auto balance = [&](double by) {
      weight[row][column] += by;
      const double value = plain_mixture(*layer, input).balance;
      weight[row][column] -= by;
      return value;
    };
    const double slope = (balance(kStep) - balance(-kStep)) / (2 * kStep);
    EXPECT_NEAR(weight.grad()[row][column].item<double>(), 3 * 0.1 * slope, 1e-7);
  }
}

TEST(MixtureOfExperts, DroppedTokensDoNotDependOnTheBatch) {
  MixtureOfExperts layer = filled(small(2, 0.5));
  const at::Tensor input = random_tensor({4, 8, 6}, 5);
  const at::Tensor joint = layer->forward(input);
  for (std::int64_t sample = 0; sample < 4; ++sample)
    EXPECT_LT(largest_difference(layer->forward(input.narrow(0, sample, 1)), joint.narrow(0, sample, 1)),
              1e-12);
}

TEST(MixtureOfExperts, RefusesWhatCannotBe) {
  const auto config = [](auto change) {
    ExpertsConfig result = small(1, 1);
    change(result);
    return message_of<UsageError>([&] { MixtureOfExperts layer(result); });
  };
  expect_facts(config([](auto& c) { c.per_token = 3; }), {"3", "1 or 2"});
  expect_facts(config([](auto& c) { c.experts = 1, c.per_token = 2; }), {"2", "1"});
  expect_facts(config([](auto& c) { c.experts = 0; }), {"experts", "0"});
  expect_facts(config([](auto& c) { c.capacity_factor = -1; }), {"-1"});
  expect_facts(message_of<UsageError>([] {
                 filled(small(1, 1))->forward(at::zeros({2, 5}, at::kDouble));
               }),
               {"[2, 5]", "6"});
}

constexpr std::int64_t kLength = 5;

struct Result {
  at::Tensor output, input_gradient;
  std::vector<at::Tensor> gradients;
};

// Runs the mean over samples of a loss that distinguishes them; a rank has samples [begin, end) of the joint
// batch.
Result pass(MixtureOfExpertsImpl& layer, std::int64_t begin, std::int64_t end, bool checkpointed = false) {
  const at::Tensor input =
      random_tensor({7, kLength, 6}, 11).narrow(0, begin, end - begin).clone().requires_grad_();
  const at::Tensor factors = random_tensor({7, kLength, 6}, 12).narrow(0, begin, end - begin);
  const SampleScope scope({.weight = static_cast<double>(end - begin)});
  const auto forward = [&](const at::Tensor& x) { return layer.forward(x); };
  const at::Tensor output = checkpointed ? checkpoint(forward, input) : forward(input);
  const auto samples = static_cast<double>(std::max<std::int64_t>(1, end - begin));
  ((output.square() * factors).sum() / samples).backward();
  Result result{output.detach(), input.grad(), {}};
  for (const at::Tensor& parameter : layer.parameters()) result.gradients.push_back(parameter.grad());
  return result;
}

// Compares ranks with `counts` samples each with one process that has the joint batch.
void expect_equal_to_one_process(const std::string& engine, const std::vector<std::int64_t>& counts,
                                 std::int64_t per_token, double capacity, bool checkpointed = false) {
  MixtureOfExperts alone = filled(small(per_token, capacity));
  const Result expected = pass(*alone, 0, 7);
  const auto ranks = static_cast<int>(counts.size());
  run_ranks(ranks, engine, [&](Context& context) {
    const int rank = context.rank();
    const std::int64_t begin = std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
    const std::int64_t mine = counts[static_cast<std::size_t>(rank)];
    MixtureOfExperts layer = filled(small(per_token, capacity));
    const std::vector<int> all = context.world().ranks();
    layer->spread({.experts = context.new_group(all), .all = context.new_group(all)});
    ASSERT_EQ(layer->experts().parameters().front().size(0), 4 / ranks);
    const Result result = pass(*layer, begin, begin + mine, checkpointed);
    const std::string what = engine + " rank " + std::to_string(rank);
    if (mine > 0) {
      EXPECT_LT(largest_difference(result.output, expected.output.narrow(0, begin, mine)), 1e-12) << what;
      // The joint loss weights a rank's samples by their share.
      EXPECT_LT(largest_difference(result.input_gradient * (static_cast<double>(mine) / 7),
                                   expected.input_gradient.narrow(0, begin, mine)),
                1e-12)
          << what;
    }
    // The router is dense: the strategy averages its gradient.
    at::Tensor router = result.gradients[0] * (static_cast<double>(mine) / 7);
    all_reduce(router, context.world());
    EXPECT_LT(largest_difference(router, expected.gradients[0]), 1e-12) << what;
    for (std::size_t i = 1; i < result.gradients.size(); ++i) {
      EXPECT_LT(largest_difference(result.gradients[i], expected.gradients[i].narrow(0, layer->first_expert(),
                                                                                     layer->local_experts())),
                1e-12)
          << what << " parameter " << i;
    }
    StepFigures figures;
    layer->take_figures(figures);
    EXPECT_EQ(figures["routed_tokens"].value(), static_cast<double>(mine * kLength * per_token));
  });
}

TEST(MixtureOfExperts, SpreadOverRanksComputesWhatOneProcessDoes) {
  for (const std::string& engine : testing::engines()) {
    expect_equal_to_one_process(engine, {4, 3}, 1, 0);
    expect_equal_to_one_process(engine, {3, 4}, 2, 0);
    expect_equal_to_one_process(engine, {2, 2, 2, 1}, 2, 1);
    expect_equal_to_one_process(engine, {7, 0}, 1, 1);  // a rank without data
  }
}

TEST(MixtureOfExperts, MayComputeItsForwardPassAgain) {
  expect_equal_to_one_process("native", {4, 3}, 2, 1, /*checkpointed=*/true);
}

// c10d's default for a missing operation: it throws before sending anything.
class WithoutAllToAll final : public c10d::Backend {
 public:
  explicit WithoutAllToAll(c10::intrusive_ptr<c10d::Backend> inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}
  const std::string getBackendName() const override { return "plain"; }
  using Work = c10::intrusive_ptr<c10d::Work>;
  Work allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    return inner_->allreduce(tensors, options);
  }
  Work broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return inner_->broadcast(tensors, options);
  }
  Work allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                 const c10d::AllgatherOptions& options) override {
    return inner_->allgather(outputs, inputs, options);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
};

TEST(MixtureOfExperts, UsesBroadcastsWithoutAllToAll) {
  register_backend("without all_to_all", [](const BackendRequest& request) {
    return c10::make_intrusive<WithoutAllToAll>(make_backend("native", request));
  });
  expect_equal_to_one_process("without all_to_all", {4, 3}, 2, 1);
}

TEST(MixtureOfExperts, RefusesExpertsThatDoNotDivide) {
  run_ranks(3, "native", [](Context& context) {
    MixtureOfExperts layer = filled(small(1, 1));
    const Group group = context.world();
    expect_facts(message_of<UsageError>([&] { layer->spread({.experts = group, .all = group}); }),
                 {"4", "3"});
  });
}

}  // namespace
}  // namespace rondo::experts_test
