#include "rondo/nn/sync_batch_norm.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cmath>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/nn/sample_dropout.h"
#include "tests/parallel/ranks.h"

namespace rondo::sync_batch_norm_test {
namespace {

using testing::largest_difference;
using testing::message_of;
using testing::random_tensor;
using testing::run_ranks;

constexpr std::int64_t kFeatures = 5;

struct Values {
  at::Tensor output, input_gradient, weight_gradient, bias_gradient, running_mean, running_var;
};

at::Tensor joint_input(std::int64_t samples, std::int64_t features = kFeatures) {
  // A mean that is large compared with the deviation.
  return random_tensor({samples, features, 3, 2}, 5) * 2 + 100;
}

template <class Norm>
void fill(Norm& norm) {
  const at::NoGradGuard no_gradient;
  norm.to(at::kDouble);
  norm.weight.copy_(random_tensor({kFeatures}, 1));
  norm.bias.copy_(random_tensor({kFeatures}, 2));
}

// Returns the mean over samples, as in the loss of the joint batch; `output` has some of its rows.
at::Tensor mean_loss(const at::Tensor& output, const at::Tensor& factors) {
  return (output.square() * factors).sum() / std::max<std::int64_t>(1, output.size(0));
}

Values one_process(const at::Tensor& joint, const at::Tensor& factors) {
  torch::nn::BatchNorm2d norm(kFeatures);
  fill(*norm);
  const at::Tensor input = joint.clone().requires_grad_();
  const at::Tensor output = norm->forward(input);
  mean_loss(output, factors).backward();
  return {output.detach(),   input.grad(),       norm->weight.grad(),
          norm->bias.grad(), norm->running_mean, norm->running_var};
}

void expect_equal_to_one_process(const std::vector<std::int64_t>& counts) {
  std::int64_t samples = 0;
  for (const std::int64_t count : counts) samples += count;
  const at::Tensor joint = joint_input(samples), factors = random_tensor(joint.sizes(), 9);
  const Values expected = one_process(joint, factors);
  run_ranks("native", static_cast<int>(counts.size()), [&](const Group& group) {
    std::int64_t first = 0;
    for (int rank = 0; rank < group.rank(); ++rank) first += counts[static_cast<std::size_t>(rank)];
    const std::int64_t count = counts[static_cast<std::size_t>(group.rank())];
    SyncBatchNorm norm(torch::nn::BatchNormOptions(kFeatures), group);
    fill(*norm);
    const SampleScope scope({.weight = static_cast<double>(count)});
    const at::Tensor input = joint.narrow(0, first, count).clone().requires_grad_();
    const at::Tensor output = norm->forward(input);
    mean_loss(output, factors.narrow(0, first, count)).backward();

    // Combines gradients of parameters and of the input as a strategy does.
    const double share = static_cast<double>(count) / static_cast<double>(samples);
    at::Tensor weight = norm->weight.grad() * share, bias = norm->bias.grad() * share;
    all_reduce(weight, group);
    all_reduce(bias, group);
    EXPECT_LT(largest_difference(weight, expected.weight_gradient), 1e-9);
    EXPECT_LT(largest_difference(bias, expected.bias_gradient), 1e-9);
    EXPECT_LT(largest_difference(norm->running_mean, expected.running_mean), 1e-10);
    EXPECT_LT(largest_difference(norm->running_var, expected.running_var), 1e-10);
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);
    if (count == 0) return;
    EXPECT_LT(largest_difference(output.detach(), expected.output.narrow(0, first, count)), 1e-9);
    EXPECT_LT(largest_difference(input.grad() * share, expected.input_gradient.narrow(0, first, count)),
              1e-9);
  });
}

TEST(SyncBatchNorm, EqualsOneProcessOnTheJointBatch) {
  expect_equal_to_one_process({4, 4});
  expect_equal_to_one_process({3, 3, 3});
  expect_equal_to_one_process({2, 2, 2, 2});
}

TEST(SyncBatchNorm, RanksMayHaveUnequalBatchesOrNone) {
  expect_equal_to_one_process({5, 1});
  expect_equal_to_one_process({1, 0, 6});
  expect_equal_to_one_process({0, 2});
}

TEST(SyncBatchNorm, WorksOverEveryEngineForTwoDimensions) {
  for (const std::string& engine : testing::engines()) {
    const at::Tensor joint = random_tensor({6, kFeatures}, 3);
    torch::nn::BatchNorm1d reference(
        torch::nn::BatchNormOptions(kFeatures).affine(false).momentum(std::nullopt));
    reference->to(at::kDouble);
    const at::Tensor expected = reference->forward(joint);
    run_ranks(engine, 2, [&](const Group& group) {
      SyncBatchNorm norm(torch::nn::BatchNormOptions(kFeatures).affine(false).momentum(std::nullopt), group);
      norm->to(at::kDouble);
      const at::Tensor output = norm->forward(joint.narrow(0, 3 * group.rank(), 3));
      EXPECT_LT(largest_difference(output, expected.narrow(0, 3 * group.rank(), 3)), 1e-12);
      EXPECT_LT(largest_difference(norm->running_var, reference->running_var), 1e-12);
    });
  }
}

TEST(SyncBatchNorm, WithoutWeightsAllRanksCountTheSame) {
  // As in PyTorch's DistributedDataParallel: the mean of the ranks' mean losses.
  const at::Tensor joint = joint_input(4), factors = random_tensor(joint.sizes(), 9);
  torch::nn::BatchNorm2d norm(kFeatures);
  fill(*norm);
  const at::Tensor input = joint.clone().requires_grad_();
  const at::Tensor output = norm->forward(input);
  ((mean_loss(output.narrow(0, 0, 3), factors.narrow(0, 0, 3)) +
    mean_loss(output.narrow(0, 3, 1), factors.narrow(0, 3, 1))) /
   2)
      .backward();
  run_ranks("native", 2, [&](const Group& group) {
    SyncBatchNorm mine(torch::nn::BatchNormOptions(kFeatures), group);
    fill(*mine);
    const std::int64_t first = group.rank() * 3, count = group.rank() == 0 ? 3 : 1;
    const at::Tensor part = joint.narrow(0, first, count).clone().requires_grad_();
    mean_loss(mine->forward(part), factors.narrow(0, first, count)).backward();
    EXPECT_LT(largest_difference(part.grad() / 2, input.grad().narrow(0, first, count)), 1e-9);
  });
}

TEST(SyncBatchNorm, HalfPrecisionIsSummedInFull) {
  run_ranks("native", 2, [](const Group& group) {
    SyncBatchNorm norm(torch::nn::BatchNormOptions(kFeatures), group);
    const at::Tensor input = joint_input(6).narrow(0, group.rank() * 3, 3).to(at::kBFloat16).requires_grad_();
    const at::Tensor output = norm->forward(input);
    EXPECT_EQ(output.scalar_type(), at::kBFloat16);
    output.sum().backward();
    EXPECT_EQ(input.grad().scalar_type(), at::kBFloat16);
    EXPECT_LT(largest_difference(norm->running_mean, at::full({kFeatures}, 10.0)), 0.5);
  });
}

TEST(SyncBatchNorm, EvaluationAndOneRankAreBatchNorm) {
  torch::nn::BatchNorm2d reference(kFeatures);
  SyncBatchNorm norm(kFeatures);
  fill(*reference);
  fill(*norm);
  const at::Tensor input = joint_input(3);
  EXPECT_TRUE(at::equal(norm->forward(input), reference->forward(input)));
  EXPECT_TRUE(at::equal(norm->running_var, reference->running_var));
  reference->eval();
  norm->eval();
  EXPECT_TRUE(at::equal(norm->forward(input), reference->forward(input)));
}

TEST(SyncBatchNorm, ReplacesBatchNormInSequences) {
  run_ranks("native", 2, [](const Group& group) {
    torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4), SyncBatchNorm(4),
                                torch::nn::Linear(4, 4));
    const auto names = [&] {
      std::vector<std::string> all;
      for (const auto& p : model->named_parameters()) all.push_back(p.key());
      for (const auto& b : model->named_buffers()) all.push_back(b.key());
      return all;
    };
    const auto before = names();
    const std::vector<at::Tensor> tensors = model->parameters();
    EXPECT_EQ(synchronise_batch_norms(*model, group), 2);
    EXPECT_EQ(names(), before);
    const std::vector<at::Tensor> after = model->parameters();
    for (std::size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(after[i].is_same(tensors[i]));
    EXPECT_EQ(model->at<SyncBatchNormImpl>(1).group().size(), 2);
    EXPECT_EQ(model->at<SyncBatchNormImpl>(2).group().size(), 2);
    model->forward(random_tensor({3, 4}, 1, at::kFloat));
    EXPECT_EQ(model->at<SyncBatchNormImpl>(1).num_batches_tracked.item<std::int64_t>(), 1);
  });
}

struct MemberImpl : torch::nn::Module {
  MemberImpl() {
    register_module("first", first);
    register_module("norm", norm);
  }
  torch::nn::Sequential first{torch::nn::BatchNorm1d(4)};
  torch::nn::BatchNorm1d norm{4};
};

TEST(SyncBatchNorm, RefusesWhatCannotBe) {
  run_ranks("native", 2, [](const Group& group) {
    MemberImpl member;
    const std::string message = message_of([&] { synchronise_batch_norms(member, group); });
    EXPECT_NE(message.find("'norm'"), std::string::npos) << message;
    EXPECT_NE(message.find("rondo::SyncBatchNorm"), std::string::npos) << message;
    EXPECT_NE(dynamic_cast<torch::nn::BatchNorm1dImpl*>(member.first->ptr(0).get()),
              nullptr);  // unchanged

    SyncBatchNorm norm(torch::nn::BatchNormOptions(kFeatures), group);
    EXPECT_THROW(norm->forward(at::ones({2, 4})), UsageError);
    EXPECT_THROW(norm->forward(at::ones({kFeatures})), UsageError);
    const std::string one = message_of([&] {
      norm->forward(at::ones({group.rank() == 0 ? 1 : 0, kFeatures}));
    });
    EXPECT_NE(one.find("more than one value"), std::string::npos) << one;
    const at::Tensor input = random_tensor({2, kFeatures}, 1, at::kFloat).requires_grad_();
    const at::Tensor loss = norm->forward(input).square().sum();
    EXPECT_THROW(torch::autograd::grad({loss}, {input}, {}, /*retain_graph=*/true, /*create_graph=*/true),
                 UsageError);
  });
}

}  // namespace
}  // namespace rondo::sync_batch_norm_test
