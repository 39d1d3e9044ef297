#include <gtest/gtest.h>

#include <functional>

#include "rondo/base/error.h"
#include "rondo/nn/wrap.h"
#include "tests/parallel/sharded/layers.h"

// Sparse gradients under strategies that divide a model: refused by name, without an assertion of libtorch.
namespace rondo::testing::sparse_gradients_test {
namespace {

struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(bool sparse) : words(torch::nn::EmbeddingOptions(10, 4).sparse(sparse)), head(4, 2) {
    register_module("words", words);
    register_module("head", head);
  }
  torch::nn::Embedding words;
  torch::nn::Linear head;
};

// A model that cannot be detected in advance: it calls embedding() itself with sparse gradients.
struct OwnLookupImpl : torch::nn::Module {
  OwnLookupImpl() { table = register_parameter("table", torch::ones({10, 4})); }
  at::Tensor forward(const at::Tensor& numbers) {
    return at::embedding(table, numbers, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false, /*sparse=*/true);
  }
  at::Tensor table;
};

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was refused";
}

const std::vector<std::string> kDividing = {"zero1", "zero2", "zero3", "zero3_keep", "hsdp"};

TEST(SparseGradients, NamesTheirLayerBeforeTraining) {
  for (const std::string& name : kDividing) {
    run_ranks(2, "native", [&](Context& context) {
      const auto strategy = all_strategies().make(name, context);
      const std::string said = refusal_of([&] { strategy->prepare(std::make_shared<WordsImpl>(true)); });
      EXPECT_NE(said.find("layer 'words'"), std::string::npos) << name << ": " << said;
      EXPECT_NE(strategy->prepare(std::make_shared<WordsImpl>(false)), nullptr);
    });
  }
}

TEST(SparseGradients, OfAnythingElseNameTheirParameter) {
  for (const std::string& name : kDividing) {
    run_ranks(2, "native", [&](Context& context) {
      const auto strategy = all_strategies().make(name, context);
      const auto model = std::make_shared<OwnLookupImpl>();
      const auto prepared = strategy->prepare(model);
      const std::string said = refusal_of([&] {
        prepared->begin_step({.samples = 1, .gradients_are_read = false});
        model->forward(torch::arange(3)).sum().backward();
        prepared->finish_backward();
      });
      EXPECT_NE(said.find("parameter 'table' is sparse"), std::string::npos) << name << ": " << said;
    });
  }
}

}  // namespace
}  // namespace rondo::testing::sparse_gradients_test
