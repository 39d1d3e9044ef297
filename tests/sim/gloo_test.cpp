// Engines that do not know the device: Gloo, to which rondo passes copies on the CPU, and an engine of a
// program that takes CPU tensors only.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <utility>
#include <vector>

#include "rondo/backend/registry.h"
#include "tests/errors.h"
#include "tests/sim/ranks.h"
#include "tests/sim/training.h"

namespace rondo::sim::gloo_test {
namespace {

using Tensors = std::vector<at::Tensor>;
using Work = c10::intrusive_ptr<c10d::Work>;

// The tensors of one call on two ranks, on `where`. The rank's values differ from the other's.
struct Call {
  c10::Device where;
  int rank;
  Tensors written = {};

  at::Tensor input(std::int64_t first) const {
    return (at::arange(6, at::kFloat) + static_cast<double>(first + 10 * rank)).to(where);
  }
  at::Tensor output(std::int64_t size) {
    return written.emplace_back(at::zeros({size}, at::TensorOptions().device(where)));
  }
  at::Tensor in_place(std::int64_t first) { return written.emplace_back(input(first)); }
};

using Operation = std::function<Work(c10d::Backend&, Call&)>;

std::vector<std::pair<const char*, Operation>> collectives() {
  return {
      {"broadcast",
       [](c10d::Backend& gloo, Call& call) {
         Tensors tensors{call.in_place(0)};
         c10d::BroadcastOptions options;
         options.rootRank = 1;
         return gloo.broadcast(tensors, options);
       }},
      {"allreduce",
       [](c10d::Backend& gloo, Call& call) {
         Tensors tensors{call.in_place(0)};
         return gloo.allreduce(tensors);
       }},
      {"allreduce_coalesced",
       [](c10d::Backend& gloo, Call& call) {
         Tensors tensors{call.in_place(0), call.in_place(100)};
         return gloo.allreduce_coalesced(tensors);
       }},
      {"reduce",
       [](c10d::Backend& gloo, Call& call) {
         Tensors tensors{call.in_place(0)};
         if (call.rank == 1) call.written.clear();  // the result is the root's
         return gloo.reduce(tensors);
       }},
      {"allgather",
       [](c10d::Backend& gloo, Call& call) {
         std::vector<Tensors> outputs{{call.output(6), call.output(6)}};
         Tensors inputs{call.input(0)};
         return gloo.allgather(outputs, inputs);
       }},
      {"_allgather_base",
       [](c10d::Backend& gloo, Call& call) {
         at::Tensor output = call.output(12), input = call.input(0);
         return gloo._allgather_base(output, input);
       }},
      {"allgather_coalesced",
       [](c10d::Backend& gloo, Call& call) {
         std::vector<Tensors> outputs{{call.output(6), call.output(6)}, {call.output(6), call.output(6)}};
         Tensors inputs{call.input(0), call.input(100)};
         return gloo.allgather_coalesced(outputs, inputs);
       }},
      {"allgather_into_tensor_coalesced",
       [](c10d::Backend& gloo, Call& call) {
         Tensors outputs{call.output(12), call.output(12)}, inputs{call.input(0), call.input(100)};
         return gloo.allgather_into_tensor_coalesced(outputs, inputs);
       }},
      {"gather",
       [](c10d::Backend& gloo, Call& call) {
         std::vector<Tensors> outputs;
         if (call.rank == 0) outputs = {{call.output(6), call.output(6)}};
         Tensors inputs{call.input(0)};
         return gloo.gather(outputs, inputs);
       }},
      {"scatter",
       [](c10d::Backend& gloo, Call& call) {
         std::vector<Tensors> inputs;
         if (call.rank == 0) inputs = {{call.input(0), call.input(100)}};
         Tensors outputs{call.output(6)};
         return gloo.scatter(outputs, inputs);
       }},
      {"reduce_scatter",
       [](c10d::Backend& gloo, Call& call) {
         std::vector<Tensors> inputs{{call.input(0), call.input(100)}};
         Tensors outputs{call.output(6)};
         return gloo.reduce_scatter(outputs, inputs);
       }},
      {"_reduce_scatter_base",
       [](c10d::Backend& gloo, Call& call) {
         at::Tensor output = call.output(3), input = call.input(0);
         return gloo._reduce_scatter_base(output, input);
       }},
      {"reduce_scatter_tensor_coalesced",
       [](c10d::Backend& gloo, Call& call) {
         Tensors outputs{call.output(3), call.output(3)}, inputs{call.input(0), call.input(100)};
         return gloo.reduce_scatter_tensor_coalesced(outputs, inputs);
       }},
      {"alltoall_base",
       [](c10d::Backend& gloo, Call& call) {
         // Rank 0 keeps 2 elements and sends 4; rank 1 sends 1 and keeps 5.
         std::vector<std::int64_t> sent =
             call.rank == 0 ? std::vector<std::int64_t>{2, 4} : std::vector<std::int64_t>{1, 5};
         std::vector<std::int64_t> received =
             call.rank == 0 ? std::vector<std::int64_t>{2, 1} : std::vector<std::int64_t>{4, 5};
         at::Tensor output = call.output(received[0] + received[1]), input = call.input(0);
         return gloo.alltoall_base(output, input, received, sent);
       }},
      {"message",
       [](c10d::Backend& gloo, Call& call) {
         Tensors sent{call.input(0)}, received{call.output(6)};
         const Work send = gloo.send(sent, 1 - call.rank, 7);
         const Work receive = gloo.recv(received, 1 - call.rank, 7);
         send->wait();
         return receive;
       }},
      {"message of any rank",
       [](c10d::Backend& gloo, Call& call) {
         Tensors sent{call.input(0)}, received{call.output(6)};
         const Work send = gloo.send(sent, 1 - call.rank, 7);
         const Work receive = gloo.recvAnysource(received, 7);
         send->wait();
         return receive;
       }},
  };
}

TEST(SimGloo, EachOperationHasTheResultOfTheCpu) {
  const auto body = [](Context& context) {
    for (const auto& [name, operation] : collectives()) {
      SCOPED_TRACE(name);
      Call on_cpu{c10::kCPU, context.rank()}, on_device{device(context.rank()), context.rank()};
      for (Call* const call : {&on_cpu, &on_device}) {
        const Work work = operation(*context.world().backend(), *call);
        EXPECT_TRUE(work->wait());
      }
      ASSERT_EQ(on_device.written.size(), on_cpu.written.size());
      for (std::size_t i = 0; i < on_cpu.written.size(); ++i) {
        const at::Tensor found = on_device.written[i];
        EXPECT_EQ(found.device(), on_device.where);
        EXPECT_TRUE(at::equal(found.cpu(), on_cpu.written[i])) << found.cpu() << on_cpu.written[i];
      }
    }
  };
  EXPECT_EQ(run_ranks(2, body, "gloo"), 0);
}

TEST(SimGloo, ATensorWithGaps) {
  const auto body = [](Context& context) {
    for (const c10::Device where : {c10::Device(c10::kCPU), device(context.rank())}) {
      at::Tensor all = at::zeros({6}, at::TensorOptions().device(where));
      Tensors odd{all.slice(0, 1, 6, 2).fill_(1)}, received{all.slice(0, 0, 6, 2)};
      context.world().backend()->allreduce(odd)->wait();
      const Work send = context.world().backend()->send(odd, 1 - context.rank(), 7);
      context.world().backend()->recv(received, 1 - context.rank(), 7)->wait();
      send->wait();
      EXPECT_TRUE(at::equal(all.cpu(), at::full({6}, 2.0F))) << all.cpu();
    }
  };
  EXPECT_EQ(run_ranks(2, body, "gloo"), 0);
}

// The value of a future, and result(), are tensors of the device.
TEST(SimGloo, FutureEndsWithResultOnDevice) {
  const auto body = [](Context& context) {
    Tensors tensors{at::full({3}, 2.0F, at::TensorOptions().device(device(context.rank())))};
    const Work work = context.world().backend()->allreduce(tensors);
    const auto future = work->getFuture();
    future->wait();
    EXPECT_EQ(tensors.front().sum().item<float>(), 12);
    EXPECT_TRUE(future->value().toTensorVector().front().is_same(tensors.front()));
    EXPECT_TRUE(work->result().front().is_same(tensors.front()));
  };
  EXPECT_EQ(run_ranks(2, body, "gloo"), 0);
}

class OverGloo : public ::testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(
    OnSim, OverGloo,
    ::testing::Values(Way{.name = "ddp", .clip_norm = 1},
                      Way{.name = "zero3", .strategy = "zero3", .checkpointed = "all"},
                      Way{.name = "expert", .dimension = "expert", .experts = 4},
                      Way{.name = "pipeline", .options = {{"micro-batches", "4"}}, .dimension = "pipeline"}),
    [](const ::testing::TestParamInfo<Way>& info) { return info.param.name; });

TEST_P(OverGloo, TrainsAsOnTheCpu) {
  const auto body = [](Context& context) { expect_as_on_cpu(context, GetParam(), {device(context.rank())}); };
  EXPECT_EQ(run_ranks(2, body, "gloo"), 0);
}

struct CpuEngine final : c10d::Backend {
  using Backend::Backend;
};

TEST(SimEngines, CpuEngineIsRefusedOnADevice) {
  const auto body = [](int rank) {
    device(rank);
    const auto native = [](const BackendRequest& request) { return make_backend("native", request); };
    register_backend("for_cpus", native);
    InitOptions options{.backend = "for_cpus", .device = "sim:1", .init_method = "alone"};
    // The native engine describes itself, whatever it is registered with.
    EXPECT_EQ(init(options).device(), device(1));
    register_backend("for_cpus",
                     [](const BackendRequest& request) {
                       return c10::make_intrusive<CpuEngine>(request.rank, request.size);
                     },
                     {.all_to_all = false});
    testing::expect_facts(testing::message_of<UsageError>([&] { init(options); }),
                          {"--backend for_cpus", "sim:1", "CPU tensors only", "--device cpu"});
    options.device = "cpu";
    EXPECT_EQ(init(options).device(), c10::Device(c10::kCPU));
  };
  EXPECT_EQ(tests::run_rank_processes(1, [&](Store& /*meeting*/, int rank) { body(rank); }), 0);
}

}  // namespace
}  // namespace rondo::sim::gloo_test
