// Invalid input that only a device makes possible: each gives one error that names both devices.
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/parallel/ddp/ddp.h"
#include "rondo/parallel/registry.h"
#include "tests/errors.h"
#include "tests/sim/ranks.h"

namespace rondo::sim::refusals_test {
namespace {

using testing::expect_facts;
using testing::message_of;

std::shared_ptr<torch::nn::SequentialImpl> two_layers() {
  return std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(4, 4), torch::nn::Linear(4, 2));
}

TEST(SimRefusals, ModelOnDeviceAndHost) {
  const auto body = [](Context& context) {
    for (const std::string strategy : {"ddp", "zero1", "zero3", "hsdp", "local_sgd", "tpu"}) {
      const auto module = two_layers();
      (*module)[0]->to(device(context.rank()));
      const auto made = all_strategies().make(strategy, context, {});
      SCOPED_TRACE(strategy);
      const std::string own = device(context.rank()).str();
      expect_facts(message_of<UsageError>([&] { made->prepare(module); }),
                   {"'0.weight'", own.c_str(), "'1.weight'", "cpu", "one device"});
    }
  };
  EXPECT_EQ(run_ranks(2, body), 0);
}

TEST(SimRefusals, ABatchOnAnotherDeviceThanTheModel) {
  const auto body = [](Context& context) {
    const auto module = two_layers();
    const c10::Device own = device(context.rank()), other = device(2);
    module->to(own);
    DistributedDataParallel ddp(*module, context.world());
    for (const c10::Device elsewhere : {c10::Device(c10::kCPU), other}) {
      const at::Tensor batch = at::ones({3, 4}, at::TensorOptions().device(elsewhere));
      const std::string there = elsewhere.str(), here = own.str();
      expect_facts(message_of<UsageError>([&] { ddp.forward(*module, batch); }),
                   {"input", there.c_str(), "model", here.c_str()});
    }
    EXPECT_EQ(ddp.forward(*module, at::ones({3, 4}, at::TensorOptions().device(own))).device(), own);
  };
  EXPECT_EQ(run_ranks(2, body), 0);
}

}  // namespace
}  // namespace rondo::sim::refusals_test
