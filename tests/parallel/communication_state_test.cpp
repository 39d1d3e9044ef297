// An interrupted run continues bit for bit: communication_state() saves error feedback, PowerSGD's matrices
// and the order of buckets.
#include <torch/optim/sgd.h>

#include "rondo/base/error.h"
#include "rondo/parallel/ddp/ddp.h"
#include "rondo/parallel/hooks/default_hooks.h"
#include "rondo/parallel/hooks/power_sgd_hook.h"
#include "rondo/parallel/hooks/registry.h"
#include "tests/parallel/small_models.h"

namespace rondo::communication_state_test {
namespace {

using namespace testing;

constexpr int kSteps = 6;

// One run of a program, from its start to its end or interruption.
class Attempt {
 public:
  Attempt(const Group& group, const CommHook& hook) : group_(group), ddp_(*model_, group, small_buckets()) {
    ddp_.register_comm_hook(hook);
  }

  void train(int from, int to) {
    torch::optim::SGD optimizer(model_->parameters(), 0.1);
    for (int step = from; step < to; ++step) {
      const std::int64_t samples = 8 * group_.size();
      const at::Tensor input =
          random_tensor({samples, 6}, 1000 + static_cast<std::uint64_t>(step), at::kFloat);
      const Batch batch = my_rows({input, input.narrow(1, 0, 4).sin()}, group_);
      optimizer.zero_grad();
      mean_loss(ddp_.forward(model_, batch.input), batch).backward();
      optimizer.step();
    }
  }

  void go_on_from(Attempt& earlier) {
    const torch::NoGradGuard no_grad;
    const auto from = earlier.model_->parameters();
    const auto to = model_->parameters();
    for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    ddp_.load_communication_state(earlier.ddp_.communication_state());
  }

  double difference(const Attempt& other) const { return parameter_difference(*model_, *other.model_); }
  DistributedDataParallel& ddp() { return ddp_; }

 private:
  static DdpOptions small_buckets() {
    DdpOptions options;
    options.bucket_bytes = KiB(2);
    return options;
  }
  static TwoLayers float_model() {
    TwoLayers model(1, 200);
    model->to(at::kFloat);
    return model;
  }

  const Group group_;
  TwoLayers model_ = float_model();
  DistributedDataParallel ddp_;
};

TEST(CommunicationState, AnInterruptedRunGoesOnBitForBit) {
  const std::vector<std::string> hooks = {"int8", "top_k:0.1", "power_sgd:rank=2,start=3", "allreduce",
                                          "float16"};
  for (const int ranks : {2, 3}) {
    run_ranks("native", ranks, [&](const Group& group) {
      for (const std::string& name : hooks) {
        Attempt whole(group, make_comm_hook(name, group));
        whole.train(0, kSteps);
        // After the first step the bucket layout is about to change; the other interruption is in the middle.
        for (const int interrupted : {1, 4}) {
          Attempt before(group, make_comm_hook(name, group));
          before.train(0, interrupted);
          Attempt after(group, make_comm_hook(name, group));
          after.go_on_from(before);
          after.train(interrupted, kSteps);
          EXPECT_EQ(after.difference(whole), 0)
              << name << " on " << ranks << " ranks from step " << interrupted;
        }
      }
    });
  }
}

// Shows that the state matters: without it the same run has another result.
TEST(CommunicationState, WithoutItErrorFeedbackBeginsAnew) {
  run_ranks("native", 2, [](const Group& group) {
    for (const std::string name : {"int8", "top_k:0.1", "power_sgd:rank=2,start=3"}) {
      Attempt whole(group, make_comm_hook(name, group));
      whole.train(0, kSteps);
      Attempt before(group, make_comm_hook(name, group));
      before.train(0, 4);
      CommState state = before.ddp().communication_state();
      std::erase_if(state, [](const auto& entry) { return entry.first.find('/') != std::string::npos; });
      Attempt after(group, make_comm_hook(name, group));
      after.go_on_from(before);
      if (name.starts_with("power_sgd")) {
        EXPECT_NE(
            message_of([&] { after.ddp().load_communication_state(state); }).find("not one of PowerSGD"),
            std::string::npos);
        continue;
      }
      after.ddp().load_communication_state(state);
      after.train(4, kSteps);
      EXPECT_NE(after.difference(whole), 0) << name;
    }
  });
}

TEST(CommunicationState, WrappersKeepTheHooksState) {
  run_ranks("native", 2, [](const Group& group) {
    const auto hook = [&] {
      PowerSgdOptions options;
      options.start_iter = 2;
      return bf16_compress_wrapper(power_sgd_hook(group, options));
    };
    Attempt whole(group, hook());
    whole.train(0, kSteps);
    Attempt before(group, hook());
    before.train(0, 4);
    Attempt after(group, hook());
    after.go_on_from(before);
    after.train(4, kSteps);
    EXPECT_EQ(after.difference(whole), 0);
  });
}

TEST(CommunicationState, OfAnotherModelOrHookIsRefused) {
  run_ranks("native", 2, [](const Group& group) {
    Attempt run(group, make_comm_hook("int8", group));
    run.train(0, 3);
    const CommState state = run.ddp().communication_state();
    Attempt other_hook(group, make_comm_hook("top_k:0.1", group));
    const std::string hooks = message_of([&] { other_hook.ddp().load_communication_state(state); });
    EXPECT_NE(hooks.find("'codec int8', this model has 'codec top_k:0.1'"), std::string::npos) << hooks;

    torch::nn::Linear other(3, 2);
    DistributedDataParallel other_model(*other, group);
    other_model.register_comm_hook(make_comm_hook("int8", group));
    const std::string models = message_of([&] { other_model.load_communication_state(state); });
    EXPECT_NE(models.find("a model with 4 trained parameters, this one has 2"), std::string::npos) << models;

    // A model with as many parameters but other sizes is detected where the state is used.
    TwoLayers wider(1, 300);
    wider->to(at::kFloat);
    DistributedDataParallel wider_model(*wider, group);
    wider_model.register_comm_hook(make_comm_hook("int8", group));
    wider_model.load_communication_state(state);
    const std::string sizes = message_of([&] {
      wider_model.forward(wider, random_tensor({4, 6}, 1, at::kFloat)).sum().backward();
    });
    EXPECT_NE(sizes.find("error feedback that was saved has"), std::string::npos) << sizes;
  });
}

}  // namespace
}  // namespace rondo::communication_state_test
