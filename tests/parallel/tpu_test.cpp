// Strategy tpu: choice of the torus, and messages between neighbours only.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <atomic>
#include <mutex>
#include <set>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/parallel/registry.h"
#include "rondo/parallel/tpu/torus.h"
#include "tests/parallel/ranks.h"

namespace rondo::tpu_test {
namespace {

using namespace testing;

TEST(Torus, ShapeIsGivenOrFromSliceOrSquare) {
  const auto shape = [](const std::string& text, int ranks, const env::EnvironmentMap& environment = {}) {
    const Torus torus = find_torus(text, ranks, environment);
    return std::pair(torus.rows, torus.columns);
  };
  EXPECT_EQ(shape("2x4", 8), std::pair(2, 4));
  EXPECT_EQ(shape("8x1", 8), std::pair(8, 1));
  EXPECT_EQ(shape("auto", 12), std::pair(3, 4));
  EXPECT_EQ(shape("auto", 7), std::pair(1, 7));
  EXPECT_EQ(shape("auto", 16, {{"TPU_TOPOLOGY", "2x8"}}), std::pair(2, 8));
  EXPECT_EQ(shape("auto", 16, {{"TPU_TOPOLOGY", "2x1x8"}}), std::pair(2, 8));
  EXPECT_EQ(shape("auto", 4, {{"TPU_TOPOLOGY", "2x8"}}), std::pair(2, 2));  // one rank per host
  expect_facts(message_of<UsageError>([&] { shape("2x3", 4); }), {"torus 2x3", "6", "4"});
  for (const char* bad : {"2", "2x2x1", "0x4", "2x", "x2", "two"})
    expect_facts(message_of<UsageError>([&] { shape(bad, 4); }), {"torus", bad});
}

TEST(Torus, RefusesAnotherSizeBeforeAllocation) {
  run_ranks(2, "native", [](Context& context) {
    expect_facts(message_of<UsageError>([&] {
                   all_strategies().make("tpu", context, {{"torus", "2x2"}});
                 }),
                 {"2x2", "4", "2"});
  });
}

// Records which rank sends to which.
class Spy final : public c10d::Backend {
 public:
  struct Log {
    std::mutex mutex;
    std::set<std::pair<int, int>> sent;
  };
  Spy(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<Log> log)
      : c10d::Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), log_(std::move(log)) {}
  const std::string getBackendName() const override { return "spy"; }
  using Work = c10::intrusive_ptr<c10d::Work>;
  Work send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    {
      const std::lock_guard lock(log_->mutex);
      log_->sent.insert({getRank(), to});
    }
    return inner_->send(tensors, to, tag);
  }
  Work recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    return inner_->recv(tensors, from, tag);
  }
  Work allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    return inner_->allreduce(tensors, options);
  }
  Work allgather(std::vector<std::vector<at::Tensor>>& out, std::vector<at::Tensor>& in,
                 const c10d::AllgatherOptions& options) override {
    return inner_->allgather(out, in, options);
  }
  Work _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) override {
    return inner_->_allgather_base(out, in, options);
  }
  Work broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return inner_->broadcast(tensors, options);
  }
  Work barrier(const c10d::BarrierOptions& options) override { return inner_->barrier(options); }

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
  std::shared_ptr<Log> log_;
};

TEST(Torus, GradientsTravelBetweenNeighboursOnly) {
  constexpr int kRanks = 8, kRows = 2, kColumns = 4;
  const auto log = std::make_shared<Spy::Log>();
  register_backend("spy", [log](const BackendRequest& request) {
    return c10::make_intrusive<Spy>(make_backend("native", request), log);
  });
  run_ranks(kRanks, "spy", [](Context& context) {
    torch::nn::Linear model(300, 50);
    model->to(at::kDouble);
    fill_parameters(*model, 3);
    const auto strategy = all_strategies().make("tpu", context, {{"torus", "2x4"}});
    EXPECT_EQ(strategy->num_replicas_in_sync(), context.world_size());
    const auto prepared = strategy->prepare(model.ptr());
    prepared->begin_step({.samples = 1});
    const at::Tensor input = random_tensor({1, 300}, static_cast<std::uint64_t>(context.rank()));
    model->forward(input).sum().backward();
    prepared->finish_backward();
    at::Tensor mean = input.expand({50, 300}).clone();
    all_reduce(mean, context.world(), ReduceOp::AVG);
    EXPECT_LT(largest_difference(model->weight.grad(), mean), 1e-12);
  });
  std::set<std::pair<int, int>> neighbours;
  for (int rank = 0; rank < kRanks; ++rank) {
    const int row = rank / kColumns, column = rank % kColumns;
    neighbours.insert({rank, row * kColumns + (column + 1) % kColumns});
    neighbours.insert({rank, (row + 1) % kRows * kColumns + column});
  }
  EXPECT_EQ(log->sent, neighbours);
}

// All ranks gather all encodings over the torus.
TEST(Torus, EncodingsStayWithinBoundAndAgree) {
  run_ranks(6, "native", [](Context& context) {
    for (const char* codec : {"none", "bfloat16", "int8"}) {
      torch::nn::Linear model(300, 50);
      fill_parameters(*model, 3);
      const auto strategy = all_strategies().make("tpu", context, {{"torus", "2x3"}, {"codec", codec}});
      const auto prepared = strategy->prepare(model.ptr());
      prepared->begin_step({.samples = 1});
      const at::Tensor input =
          random_tensor({1, 300}, static_cast<std::uint64_t>(context.rank()), at::kFloat);
      model->forward(input).sum().backward();
      prepared->finish_backward();
      at::Tensor mean = input.expand({50, 300}).clone();
      all_reduce(mean, context.world(), ReduceOp::AVG);
      const at::Tensor gradient = model->weight.grad().clone();
      EXPECT_LT(largest_difference(gradient, mean), 0.03) << codec;
      for (const at::Tensor& other : all_gather(gradient, context.world()))
        EXPECT_TRUE(at::equal(other, gradient)) << codec;
    }
  });
}

// Gradients that a codec does not encode are averaged without it.
TEST(Torus, DoubleGradientsUnderACodecAreTheMean) {
  run_ranks(4, "native", [](Context& context) {
    torch::nn::Linear model(30, 5);
    model->to(at::kDouble);
    fill_parameters(*model, 3);
    const auto strategy = all_strategies().make("tpu", context, {{"torus", "2x2"}, {"codec", "int8"}});
    const auto prepared = strategy->prepare(model.ptr());
    prepared->begin_step({.samples = 1});
    const at::Tensor input = random_tensor({1, 30}, static_cast<std::uint64_t>(context.rank()));
    model->forward(input).sum().backward();
    prepared->finish_backward();
    at::Tensor mean = input.expand({5, 30}).clone();
    all_reduce(mean, context.world(), ReduceOp::AVG);
    EXPECT_LT(largest_difference(model->weight.grad(), mean), 1e-12);
  });
}

TEST(Torus, DifferentToriAreRefusedOnEveryRank) {
  run_ranks(4, "native", [](Context& context) {
    const auto strategy =
        all_strategies().make("tpu", context, {{"torus", context.rank() == 0 ? "1x4" : "2x2"}});
    torch::nn::Linear model(3, 2);
    expect_facts(message_of<MismatchError>([&] { strategy->prepare(model.ptr()); }), {"1x4", "2x2"});
  });
}

}  // namespace
}  // namespace rondo::tpu_test
