// Parameters without gradients, static graphs, failing backward passes, hooks and traces.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "rondo/base/error.h"
#include "rondo/parallel/ddp/ddp.h"
#include "tests/parallel/small_models.h"

namespace rondo::ddp_backward_test {
namespace {

using namespace testing;

// A model with three branches, selected per call, for graphs that differ between ranks.
struct BranchesImpl : torch::nn::Module {
  explicit BranchesImpl(bool large) {
    for (int i = 0; i < 3; ++i) {
      branches.push_back(
          register_module("branch" + std::to_string(i), torch::nn::Linear(3, large ? 2800 : 2)));
    }
    to(at::kDouble);
    fill_parameters(*this, 8);
  }
  at::Tensor forward(const at::Tensor& input, const std::vector<std::size_t>& used) {
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const std::size_t index : used) sum = sum + branches[index](input).pow(2).mean();
    return sum;
  }
  std::vector<torch::nn::Linear> branches;
};
TORCH_MODULE(Branches);

const at::Tensor& input() {
  static const at::Tensor tensor = random_tensor({4, 3}, 77);
  return tensor;
}

class DdpBackward : public ::testing::TestWithParam<Setting> {
 protected:
  const std::string& engine() const { return GetParam().engine; }
  Branches make_branches() const { return Branches(GetParam().large); }
  // Returns the gradient of one branch's weight if a single process uses it.
  at::Tensor branch_gradient(std::size_t index) const;
};

at::Tensor DdpBackward::branch_gradient(std::size_t index) const {
  Branches model = make_branches();
  model->forward(input(), {index}).backward();
  return model->branches[index]->weight.grad();
}

TEST_P(DdpBackward, UnusedParameterIsANamedError) {
  run_ranks(engine(), 2, [&](const Group& group) {
    Branches model = make_branches();
    DistributedDataParallel ddp(*model, group);
    const std::string message = message_of([&] {
      ddp.forward(model, input(), std::vector<std::size_t>{0, 2}).backward();
    });
    EXPECT_NE(message.find("'branch1.weight', 'branch1.bias'"), std::string::npos) << message;
    EXPECT_NE(message.find("find_unused_parameters"), std::string::npos) << message;
  });
}

TEST_P(DdpBackward, UnusedOnOneRankCountsAsZero) {
  for (const bool as_view : {true, false}) {
    run_ranks(engine(), 2, [&](const Group& group) {
      Branches model = make_branches();
      DdpOptions options;
      options.find_unused_parameters = true;
      options.gradient_as_bucket_view = as_view;
      options.bucket_bytes = Bytes{1};
      DistributedDataParallel ddp(*model, group, options);
      for (int step = 0; step < 3; ++step) {
        model->zero_grad();
        // Rank 0 uses branches 0 and 1, rank 1 uses 0; the last step swaps them. No rank uses branch 2.
        const bool both = (group.rank() == 0) == (step < 2);
        ddp.forward(model, input(), both ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{0})
            .backward();
        EXPECT_LT(largest_difference(model->branches[0]->weight.grad(), branch_gradient(0)), kTolerance);
        EXPECT_LT(largest_difference(model->branches[1]->weight.grad(), branch_gradient(1) / 2), kTolerance);
        EXPECT_FALSE(model->branches[2]->weight.grad().defined());
      }
    });
  }
}

TEST_P(DdpBackward, UnusedEverywhereKeepsItsGradient) {
  for (const bool as_view : {true, false}) {
    run_ranks(engine(), 2, [&](const Group& group) {
      Branches model = make_branches();
      DdpOptions options;
      options.find_unused_parameters = true;
      options.gradient_as_bucket_view = as_view;
      DistributedDataParallel ddp(*model, group, options);
      ddp.forward(model, input(), std::vector<std::size_t>{0, 1, 2}).backward();
      model->branches[1]->weight.mutable_grad().fill_(group.rank() + 7);
      ddp.forward(model, input(), std::vector<std::size_t>{0}).backward();
      EXPECT_EQ(model->branches[1]->weight.grad().min().item<double>(), group.rank() + 7);
      EXPECT_EQ(model->branches[1]->weight.grad().max().item<double>(), group.rank() + 7);
      EXPECT_LT(largest_difference(model->branches[0]->weight.grad(), branch_gradient(0) * 2), kTolerance);
    });
  }
}

TEST_P(DdpBackward, UsedUnderNoSyncCountsAsUsed) {
  run_ranks(engine(), 2, [&](const Group& group) {
    Branches model = make_branches();
    DdpOptions options;
    options.find_unused_parameters = true;
    DistributedDataParallel ddp(*model, group, options);
    {
      const NoSync guard = ddp.no_sync();
      if (group.rank() == 1) ddp.forward(model, input(), std::vector<std::size_t>{2}).backward();
    }
    ddp.forward(model, input(), std::vector<std::size_t>{0}).backward();
    EXPECT_LT(largest_difference(model->branches[2]->weight.grad(), branch_gradient(2) / 2), kTolerance);
  });
}

TEST_P(DdpBackward, AStaticGraphLearnsFromTheFirstStep) {
  run_ranks(engine(), 2, [&](const Group& group) {
    Branches model = make_branches();
    DdpOptions options;
    options.static_graph = true;
    DistributedDataParallel ddp(*model, group, options);
    const std::vector<std::size_t> used =
        group.rank() == 0 ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{0};
    for (int step = 0; step < 4; ++step) {
      model->zero_grad();
      ddp.forward(model, input(), used).backward();
      EXPECT_LT(largest_difference(model->branches[0]->weight.grad(), branch_gradient(0)), kTolerance);
      EXPECT_LT(largest_difference(model->branches[1]->weight.grad(), branch_gradient(1) / 2), kTolerance);
      EXPECT_FALSE(model->branches[2]->weight.grad().defined());
    }
    const std::string message = message_of([&] {
      ddp.forward(model, input(), std::vector<std::size_t>{0, 1, 2}).backward();
    });
    EXPECT_NE(message.find("static_graph"), std::string::npos) << message;
    EXPECT_NE(message.find("'branch2."), std::string::npos) << message;
  });
}

// Throws in backward if `armed`.
struct Failing : torch::autograd::Function<Failing> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, bool armed) {
    context->saved_data["armed"] = armed;
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (context->saved_data["armed"].toBool()) throw std::runtime_error("the user's own backward failed");
    return {gradients[0], at::Tensor()};
  }
};

TEST_P(DdpBackward, TrainingGoesOnAfterABackwardThatThrew) {
  const Batch joint = joint_batch(4, 0);
  TwoLayers reference(1, GetParam().large ? 2100 : 16);
  mean_loss(reference->forward(joint.input), joint).backward();
  run_ranks(engine(), 2, [&](const Group& group) {
    TwoLayers model(1, GetParam().large ? 2100 : 16);
    DdpOptions options;
    options.bucket_bytes = Bytes{1};
    DistributedDataParallel ddp(*model, group, options);
    const Batch mine = my_rows(joint, group);
    for (const bool armed : {true, false, true, false}) {
      model->zero_grad();
      const at::Tensor hidden = Failing::apply(torch::tanh(model->first(mine.input)), armed);
      const at::Tensor loss = mean_loss(model->second(hidden), mine);
      if (armed) {
        EXPECT_EQ(message_of([&] { loss.backward(); }).find("the user's own backward failed"), 0U);
      } else {
        loss.backward();
        EXPECT_LT(gradient_difference(*model, *reference), kTolerance);
      }
    }
  });
}

TEST_P(DdpBackward, AModelConvertedAfterwardsIsAClearError) {
  run_ranks(engine(), 2, [&](const Group& group) {
    torch::nn::Linear model(3, 2);
    DistributedDataParallel ddp(*model, group);
    model->to(at::kDouble);
    const std::string message = message_of([&] {
      ddp.forward(model, random_tensor({1, 3}, 0)).sum().backward();
    });
    EXPECT_NE(message.find("convert the model first"), std::string::npos) << message;
  });
}

struct CountingHook : torch::autograd::PostAccumulateGradHook {
  explicit CountingHook(int* count) : count(count) {}
  void operator()(const at::Tensor&) override { ++*count; }
  int* count;
};

TEST_P(DdpBackward, OtherHooksStayAndOursGo) {
  run_ranks(engine(), 2, [&](const Group& group) {
    at::Tensor parameter = at::ones({3}).requires_grad_();
    int calls = 0;
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<CountingHook>(&calls));
    const auto backward = [&] {
      parameter.mutable_grad().reset();
      (parameter.sum() * (1 + 2 * group.rank())).backward();
      return parameter.grad()[0].item<double>();
    };
    for (int round = 0; round < 2; ++round) {
      const DistributedDataParallel ddp(ModelTensors{{{"p", parameter}}, {}}, group);
      EXPECT_EQ(backward(), 2);
    }
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(backward(), 1 + 2 * group.rank());
    EXPECT_EQ(calls, 3);
  });
}

TEST_P(DdpBackward, BucketsAreLaunchedInOrderDuringBackward) {
  run_ranks(engine(), 2, [&](const Group& group) {
    torch::nn::Sequential model;
    for (int layer = 0; layer < 12; ++layer) model->push_back(torch::nn::Linear(16, 16));
    DdpOptions options;
    options.bucket_bytes = KiB(2);
    options.first_bucket_bytes = Bytes{1};
    DistributedDataParallel ddp(*model, group, options);
    for (int step = 0; step < 3; ++step) {
      ddp.forward(model, at::ones({2, 16})).sum().backward();
      const BackwardTrace& trace = ddp.last_backward();
      ASSERT_GT(trace.buckets.size(), 4U);
      std::uint64_t bytes = 0;
      for (std::size_t i = 0; i < trace.buckets.size(); ++i) {
        const TraceSpan& bucket = trace.buckets[i];
        bytes += *bucket.bytes;
        EXPECT_GE(*bucket.queued_ns, trace.first_gradient_ns);
        EXPECT_GE(bucket.begin_ns, *bucket.queued_ns);
        EXPECT_GE(bucket.end_ns, bucket.begin_ns);
        EXPECT_LE(bucket.end_ns, trace.end_ns);
        if (i > 0) {
          EXPECT_GE(bucket.begin_ns, trace.buckets[i - 1].begin_ns);
        }
        if (i + 1 < trace.buckets.size()) {
          EXPECT_LT(bucket.begin_ns, trace.backward_end_ns);
        }
      }
      EXPECT_EQ(bytes, 12 * (16 * 16 + 16) * sizeof(float));
      EXPECT_TRUE(trace.buckets.front().unit.starts_with("11")) << trace.buckets.front().unit;
      EXPECT_TRUE((" " + trace.buckets.back().unit).ends_with(" 0")) << trace.buckets.back().unit;
      EXPECT_GE(communication_time(trace), Duration::zero());
      EXPECT_GE(exposed_communication_time(trace), Duration::zero());
    }
  });
}

// Layers registered in the order of use get gradients in reverse order; these are used in reverse.
TEST_P(DdpBackward, BucketsAreRebuiltInTheOrderOfArrival) {
  run_ranks(engine(), 2, [&](const Group& group) {
    ModelTensors tensors;
    for (int i = 0; i < 4; ++i) {
      tensors.parameters.push_back({"p" + std::to_string(i), at::full({10 + i}, 1.0).requires_grad_()});
    }
    DdpOptions options;
    options.bucket_bytes = Bytes{1};
    DistributedDataParallel ddp(tensors, group, options);
    std::vector<std::vector<std::uint64_t>> sizes;
    for (int step = 0; step < 2; ++step) {
      at::Tensor value = at::ones({});
      for (int i = 3; i >= 0; --i)
        value = value * tensors.parameters[static_cast<std::size_t>(i)].tensor.sum();
      value.backward();
      sizes.emplace_back();
      for (const TraceSpan& bucket : ddp.last_backward().buckets) sizes.back().push_back(*bucket.bytes / 4);
    }
    EXPECT_EQ(sizes[0], (std::vector<std::uint64_t>{13, 12, 11, 10}));
    EXPECT_EQ(sizes[1], (std::vector<std::uint64_t>{10, 11, 12, 13}));
  });
}

INSTANTIATE_TEST_SUITE_P(Engines, DdpBackward, ::testing::ValuesIn(settings()), setting_name);

}  // namespace
}  // namespace rondo::ddp_backward_test
