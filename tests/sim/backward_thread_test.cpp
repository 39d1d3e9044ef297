// A device's backward runs on one of autograd's threads. rondo's thread-local state must be the same there as
// on the thread of the forward pass.
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/error.h"
#include "rondo/base/replica.h"
#include "rondo/nn/activation_checkpoint.h"
#include "rondo/nn/parallel_communication.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/nn/sync_batch_norm.h"
#include "rondo/nn/tensor_parallel/ring_attention.h"
#include "rondo/nn/unit.h"
#include "rondo/nn/unit_state.h"
#include "rondo/observe/memory_observer.h"
#include "tests/sim/ranks.h"
#include "tests/sim/training.h"

namespace rondo::sim::backward_thread_test {
namespace {

using Function = std::function<at::Tensor(const at::Tensor&)>;

// Returns the gradients of the input, the weights and the bias of a batch norm that is recomputed in
// backward. Rank 0 has three times the weight of rank 1.
std::vector<at::Tensor> gradients_of_norm(const Group& group, c10::Device where) {
  SyncBatchNorm norm(torch::nn::BatchNormOptions(4), group);
  norm->to(where);
  const SampleScope scope({.weight = group.rank() == 0 ? 3.0 : 1.0});
  const at::Tensor values = at::arange(24).to(at::kFloat).view({6, 4}).sin() + group.rank();
  const at::Tensor input = values.to(where).set_requires_grad(true);
  const Function forward = [&](const at::Tensor& x) { return norm->forward(x); };
  checkpoint(forward, input).pow(3).sum().backward();
  return {input.grad().cpu(), norm->weight.grad().cpu(), norm->bias.grad().cpu()};
}

TEST(SimBackwardThread, SyncBatchNormWeighsRanksAsInForward) {
  const auto body = [](Context& context) {
    const auto wanted = gradients_of_norm(context.world(), c10::kCPU);
    const auto found = gradients_of_norm(context.world(), device(context.rank()));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(at::allclose(found[i], wanted[i], 1e-4, 1e-5)) << i << ", rank " << context.rank();
  };
  EXPECT_EQ(run_ranks(2, body), 0);
}

// Layers, and the balancing loss of a mixture of experts, weighted by the batch's share of its step.
TEST(SimBackwardThread, TheBalanceOfExpertsCountsAsInForward) {
  const auto body = [](Context& context) {
    expect_as_on_cpu(
        context,
        {.name = "balance", .strategy = "one_device", .experts = 4, .checkpointed = "all", .accumulate = 4},
        {device(0)});
  };
  EXPECT_EQ(run_ranks(1, body), 0);
}

// Returns true if the backward pass of `forward` counts time for the thread that ran forward.
bool counts_backward(const Function& forward, c10::Device where) {
  const at::Tensor input = at::ones({1, 2, 4, 4}).to(where).set_requires_grad(true);
  const at::Tensor loss = forward(input * 1).sum();
  take_parallel_communication_time();
  loss.backward();
  return take_parallel_communication_time() > Duration::zero();
}

TEST(SimBackwardThread, CommunicationCountsForTheThreadOfForward) {
  const auto body = [](Context& context) {
    const Group& world = context.world();
    const Function copied = [&](const at::Tensor& x) { return copy_to_ranks(x, world); };
    const Function gathered = [&](const at::Tensor& x) { return all_gather_parts(x, 2, world); };
    const Function attended = [&](const at::Tensor& x) {
      return ring_attention(x, x, x, /*causal=*/true, world, SampleDropout(nullptr));
    };
    // Communicates only in the forward pass, which backward repeats.
    const Function repeated = [&](const at::Tensor& x) {
      const Function summed = [&](const at::Tensor& y) { return sum_over_ranks(y, world); };
      return checkpoint(summed, x);
    };
    for (const c10::Device where : {c10::Device(c10::kCPU), device(context.rank())}) {
      EXPECT_TRUE(counts_backward(copied, where)) << where;
      EXPECT_TRUE(counts_backward(gathered, where)) << where;
      EXPECT_TRUE(counts_backward(attended, where)) << where;
      EXPECT_TRUE(counts_backward(repeated, where)) << where;
    }
  };
  EXPECT_EQ(run_ranks(2, body), 0);
}

// State during a backward pass.
struct Found {
  MemoryLabel label;
  MemoryMoment moment;
  int replica = -1;
};

Found find() { return {memory_labels().innermost(), memory_moment(), this_replica()}; }

// Records find() in backward, and throws if `fails` is set.
struct LayerImpl : torch::nn::Module {
  LayerImpl() { linear = register_module("linear", torch::nn::Linear(4, 4)); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = linear(x);
    y.register_hook([this](const at::Tensor& gradient) {
      found = find();
      if (fails) throw Error("a gradient that cannot be computed");
      return gradient;
    });
    return y;
  }
  torch::nn::Linear linear{nullptr};
  Found found;
  bool fails = false;
};
TORCH_MODULE(Layer);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", Unit<Layer>());
    second = register_module("second", Unit<Layer>());
  }
  // The gradient of the tensor between the units belongs to neither.
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor between = first(x);
    between.register_hook([this](const at::Tensor& gradient) {
      outside = find();
      return gradient;
    });
    return second(between);
  }
  Unit<Layer> first{nullptr}, second{nullptr};
  Found outside;
};
TORCH_MODULE(Net);

TEST(SimBackwardThread, MemoryHasLabelsAndPhase) {
  const auto body = [](Context& /*context*/) {
    track_cpu_allocations();
    const Replica second;  // as in a process that has joined a second time
    second.enter();
    Net net;
    net->to(device(1));
    const auto observer = std::make_shared<MemoryObserver>(replica_memory_tracker());
    observer->label_parameters(*net);
    for (UnitState* const unit : units_of(*net)) unit->attach(observer);
    std::vector<TraceCounter> samples;
    observer->trace([&](const TraceCounter& sample) { samples.push_back(sample); });
    const at::Tensor input = at::ones({3, 4}, at::TensorOptions().device(device(1)));
    const auto pass = [&](std::int64_t step) {
      observer->enter_phase(step, "forward", MemoryCategory::activations);
      samples.clear();
      const at::Tensor loss = net(input).sum();
      observer->enter_phase(step, "backward", MemoryCategory::temporaries);
      loss.backward();
      observer->leave_phase();
    };
    const auto expect_all = [&](std::int64_t step) {
      for (const Found& found : {net->second->found, net->outside, net->first->found}) {
        EXPECT_EQ(found.moment.step, step);
        EXPECT_STREQ(found.moment.phase, "backward");
        EXPECT_EQ(found.label.category, MemoryCategory::temporaries);
        EXPECT_EQ(found.replica, this_replica());
      }
      EXPECT_EQ(memory_unit_name(net->second->found.label.unit), "second");
      EXPECT_EQ(memory_unit_name(net->outside.label.unit), "root");
      EXPECT_EQ(memory_unit_name(net->first->found.label.unit), "first");
      EXPECT_FALSE(samples.empty());
      for (const TraceCounter& sample : samples) EXPECT_EQ(sample.step, step);
    };
    pass(7);
    expect_all(7);
    // State that a failed pass left on autograd's thread ends with the next pass, even in the same step.
    net->second->fails = true;
    EXPECT_THROW(pass(8), Error);
    observer->leave_phase();
    net->second->fails = false;
    pass(8);
    expect_all(8);
  };
  EXPECT_EQ(run_ranks(1, body), 0);
}

}  // namespace
}  // namespace rondo::sim::backward_thread_test
