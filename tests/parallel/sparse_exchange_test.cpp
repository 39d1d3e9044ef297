// Compares sparse gradients under ddp with one process on the joint batch: exchanged by rows, converted to
// dense where that takes fewer bytes, and missing on some ranks.
#include "rondo/parallel/ddp/sparse_exchange.h"

#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/parallel/ddp/ddp.h"
#include "tests/parallel/ranks.h"

namespace rondo::sparse_exchange_test {
namespace {

using namespace testing;

// Looks up words in a table of `rows`, and sums a bag of the same words; with a dense head.
struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(bool sparse, std::int64_t rows = 400)
      : table(register_module("table",
                              torch::nn::Embedding(torch::nn::EmbeddingOptions(rows, 4).sparse(sparse)))),
        bag(register_module("bag",
                            torch::nn::EmbeddingBag(
                                torch::nn::EmbeddingBagOptions(rows, 4).mode(torch::kSum).sparse(sparse)))),
        head(register_module("head", torch::nn::Linear(4, 3))) {
    to(at::kDouble);
    fill_parameters(*this, 5);
  }
  at::Tensor forward(const at::Tensor& ids) { return head(torch::tanh(table(ids).mean(1) + bag(ids))); }
  torch::nn::Embedding table;
  torch::nn::EmbeddingBag bag;
  torch::nn::Linear head;
};
TORCH_MODULE(Words);

at::Tensor ids_of(int step, std::int64_t samples, std::int64_t rows) {
  return (torch::arange(samples * 2) * 7 + 3 * step).view({samples, 2}) % rows;
}

// Returns unequal parts of a batch of 9: rank 0 takes 2, the others share the rest.
std::pair<std::int64_t, std::int64_t> part_of(int rank, int ranks) {
  if (rank == 0) return {0, ranks == 1 ? 9 : 2};
  const std::int64_t each = 7 / (ranks - 1);
  const std::int64_t begin = 2 + each * (rank - 1);
  return {begin, rank == ranks - 1 ? 9 - begin : each};
}

class SparseGradients : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Engines, SparseGradients, ::testing::ValuesIn(engines()),
                         [](const auto& info) { return info.param; });

std::vector<at::Tensor> trained_alone(std::int64_t rows, int steps) {
  Words model(false, rows);
  torch::optim::Adagrad optimizer(model->parameters(), 0.1);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    model->forward(ids_of(step, 9, rows)).pow(2).mean().backward();
    optimizer.step();
  }
  return model->parameters();
}

// Gradients of a table with many rows are exchanged as rows, those of a table with few rows as dense.
TEST_P(SparseGradients, TrainAsOnTheJointBatch) {
  constexpr int kSteps = 4;
  for (const std::int64_t rows : {400, 12}) {
    const std::vector<at::Tensor> expected = trained_alone(rows, kSteps);
    for (const int ranks : {2, 3}) {
      run_ranks(GetParam(), ranks, [&](const Group& group) {
        Words model(true, rows);
        DistributedDataParallel ddp(*model, group);
        torch::optim::Adagrad optimizer(model->parameters(), 0.1);
        const auto [begin, count] = part_of(group.rank(), ranks);
        for (int step = 0; step < kSteps; ++step) {
          optimizer.zero_grad();
          ddp.set_local_samples(count);
          ddp.forward(model, ids_of(step, 9, rows).narrow(0, begin, count)).pow(2).mean().backward();
          for (const at::Tensor& table : {model->table->weight, model->bag->weight})
            EXPECT_EQ(table.grad().is_sparse(), rows == 400) << rows;
          optimizer.step();
        }
        for (std::size_t i = 0; i < expected.size(); ++i)
          EXPECT_LT(largest_difference(model->parameters()[i], expected[i]), 1e-12) << rows << " " << i;
      });
    }
  }
}

TEST_P(SparseGradients, EqualWeightsAverageWithSameBits) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    Words model(true);
    DistributedDataParallel ddp(*model, group);
    ddp.forward(model, ids_of(group.rank(), 3, 400)).sum().backward();
    Words other(false);
    other->forward(ids_of(0, 3, 400)).sum().backward();
    other->forward(ids_of(1, 3, 400)).sum().backward();
    const at::Tensor own = model->table->weight.grad().to_dense();
    EXPECT_LT(largest_difference(own, other->table->weight.grad() / 2), 1e-12);
    at::Tensor first = own.clone();
    broadcast(first, group);
    EXPECT_TRUE(torch::equal(first, own));
  });
}

TEST_P(SparseGradients, AccumulateAndLeaveOutRanksWithoutThem) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    Words model(true);
    DdpOptions options;
    options.find_unused_parameters = true;
    DistributedDataParallel ddp(*model, group, options);
    {
      const NoSync guard = ddp.no_sync();
      ddp.forward(model, ids_of(2 * group.rank(), 3, 400)).sum().backward();
    }
    ddp.forward(model, ids_of(2 * group.rank() + 1, 3, 400)).sum().backward();
    Words other(false);
    for (int pass = 0; pass < 4; ++pass) other->forward(ids_of(pass, 3, 400)).sum().backward();
    EXPECT_LT(largest_difference(model->table->weight.grad().to_dense(), other->table->weight.grad() / 2),
              1e-12);

    // Only rank 0 looks up words.
    model->zero_grad();
    at::Tensor hidden = torch::ones({3, 4}, at::kDouble);
    if (group.rank() == 0) hidden = hidden + model->table(ids_of(0, 3, 400)).mean(1);
    ddp.before_forward();
    model->head(hidden).sum().backward();
    EXPECT_EQ(model->table->weight.grad()._nnz(), 6);
    EXPECT_FALSE(model->bag->weight.grad().defined());
  });
}

TEST_P(SparseGradients, OfAnOwnLookupAreAClearError) {
  run_ranks(GetParam(), 2, [&](const Group& group) {
    ModelTensors tensors;
    tensors.parameters.push_back({"weight", torch::ones({10, 3}).requires_grad_()});
    DistributedDataParallel ddp(tensors, group);
    const std::string message = message_of([&] {
      at::embedding(tensors.parameters[0].tensor, at::tensor({1, 2}, at::kLong), -1, false, /*sparse=*/true)
          .sum()
          .backward();
    });
    EXPECT_NE(message.find("parameter 'weight' is sparse"), std::string::npos) << message;
  });
}

TEST(SparseExchange, RanksThatDifferInThemAreToldSo) {
  run_ranks("native", 2, [&](const Group& group) {
    Words model(group.rank() == 0);
    const std::string message = message_of([&] { DistributedDataParallel(*model, group); });
    EXPECT_NE(message.find("sparse gradients of 'table.weight'"), std::string::npos) << message;
  });
}

}  // namespace
}  // namespace rondo::sparse_exchange_test
