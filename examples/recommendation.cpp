// A recommender: users and items are rows of two large tables, and a step uses few of them. Their gradients
// are sparse and are reduced by rows.
//   rondo run -n 2 build/release/bin/examples/recommendation
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <iostream>

#include "rondo/collectives.h"
#include "rondo/data.h"
#include "rondo/parallel.h"
#include "rondo/train.h"

namespace {

constexpr std::int64_t kUsers = 2000, kItems = 500, kWidth = 8;

struct RecommenderImpl : torch::nn::Module {
  RecommenderImpl() {
    const auto table = [&](const char* name, std::int64_t rows) {
      auto embedding =
          register_module(name, torch::nn::Embedding(torch::nn::EmbeddingOptions(rows, kWidth).sparse(true)));
      const torch::NoGradGuard no_gradients;
      embedding->weight.mul_(0.3);
      return embedding;
    };
    users = table("users", kUsers);
    items = table("items", kItems);
    head = register_module("head", torch::nn::Linear(kWidth, 2));
  }
  at::Tensor forward(const at::Tensor& user, const at::Tensor& item) {
    return head(users(user) * items(item));
  }
  torch::nn::Embedding users{nullptr}, items{nullptr};
  torch::nn::Linear head{nullptr};
};

// Users and items are of five kinds; a user likes items of the same kind.
std::shared_ptr<const rondo::Dataset> likes(std::int64_t pairs) {
  const at::Tensor user = torch::randint(kUsers, {pairs}), item = torch::randint(kItems, {pairs});
  return std::make_shared<rondo::TensorDataset>(rondo::Tensors{user, item},
                                                rondo::Tensors{(user % 5 == item % 5).to(torch::kLong)}, 2);
}

}  // namespace

int main() {
  const rondo::Context context = rondo::init();
  const auto strategy = rondo::all_strategies().make("ddp", context);
  torch::manual_seed(1);
  const auto model = std::make_shared<RecommenderImpl>();
  rondo::Trainer trainer(*strategy, model);
  trainer.compile(rondo::OptimizerOptions{.name = "adagrad", .learning_rate = 0.3}, rondo::cross_entropy,
                  {rondo::loss_metric(), rondo::make_metric("auc")});
  torch::manual_seed(2);
  const auto train = likes(100000), unseen = likes(4000);
  for (int epoch = 1; epoch <= 6; ++epoch) {
    trainer.fit(train, {.epochs = epoch, .batch_size = 512 / context.world_size()});
    const auto figures = trainer.evaluate(*unseen, {.batch_size = 512});
    if (context.rank() != 0) continue;
    std::cout << "epoch " << epoch << " loss " << figures.at("loss") << " auc " << figures.at("auc") << "\n";
  }
  const at::Tensor gradient = model->users->weight.grad();
  if (context.rank() == 0) {
    std::cout << "rows in the last gradient " << gradient.coalesce()._nnz() << " of " << kUsers << "\n";
  }
  return 0;
}
