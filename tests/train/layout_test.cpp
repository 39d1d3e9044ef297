// Every kind of model, with dropout and batch normalisation, trains on several ranks as in one process.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <mutex>
#include <numeric>

#include "rondo/backend/collectives.h"
#include "rondo/data/bert_text.h"
#include "rondo/models/model.h"
#include "rondo/nn/experts/mixture_of_experts.h"
#include "rondo/nn/sync_batch_norm.h"
#include "rondo/parallel/strategy_on_mesh.h"
#include "tests/backend/ranks.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"

namespace rondo::layout_test {
namespace {

using testing::Recorder;
using testing::Rows;
using testing::run_ranks;
using testing::strategy_for;

struct Task {
  std::string model;
  nlohmann::json config;
  std::shared_ptr<const Dataset> data;
  std::vector<std::string> frozen = {};
};

struct Outcome {
  std::vector<double> losses;
  std::vector<at::Tensor> tensors;
};

Outcome train_on(int ranks, const Task& task, std::int64_t accumulate) {
  constexpr std::int64_t kGlobalBatch = 12;
  Outcome outcome;
  std::mutex mutex;  // the default generator is shared
  run_ranks(ranks, "native", [&](Context& context) {
    auto strategy = strategy_for(context);
    Model model = [&] {
      const std::lock_guard lock(mutex);
      torch::manual_seed(3);
      return make_model(task.model, task.config);
    }();
    freeze(*model.module, task.frozen);
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    synchronise_batch_norms(*model.module, context.new_group(all));
    Trainer trainer(*strategy, model);
    trainer.compile([](torch::nn::Module& module) {
      return make_optimizer({.name = "sgd", .learning_rate = 0.05, .momentum = 0.9}, module);
    });
    auto recorder = std::make_shared<Recorder>();
    trainer.fit(task.data, {.epochs = 3,
                            .batch_size = kGlobalBatch / ranks / accumulate,
                            .accumulate = accumulate,
                            .seed = 4,
                            .callbacks = {recorder}});
    if (context.rank() != 0) return;
    outcome.losses = recorder->losses();
    for (const at::Tensor& t : model.module->parameters()) outcome.tensors.push_back(t.detach().clone());
    for (const at::Tensor& t : model.module->buffers()) outcome.tensors.push_back(t.clone());
  });
  return outcome;
}

void expect_the_same_on_any_layout(const Task& task, bool accumulates = true) {
  const Outcome one = train_on(1, task, 1);
  const auto compare = [&](int ranks, std::int64_t accumulate) {
    const Outcome other = train_on(ranks, task, accumulate);
    ASSERT_EQ(one.losses.size(), other.losses.size());
    for (std::size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(one.losses[i], other.losses[i], 2e-5) << ranks << " ranks, step " << i;
    }
    for (std::size_t i = 0; i < one.tensors.size(); ++i) {
      EXPECT_TRUE(at::allclose(one.tensors[i], other.tensors[i], 1e-3, 1e-4))
          << ranks << " ranks, tensor " << i;
    }
  };
  compare(2, 1);
  compare(3, 1);
  compare(4, 1);
  if (accumulates) compare(2, 2);
}

at::Tensor drawn(at::IntArrayRef shape, std::int64_t below) {
  return at::randint(below, shape, at::detail::createCPUGenerator(5), at::kLong);
}

// 31 samples: at the end of an epoch ranks have unequal numbers of samples, possibly none.
constexpr std::int64_t kSamples = 31;

const nlohmann::json kSmallBert = {{"vocabulary", 23},
                                   {"positions", 8},
                                   {"layers", 2},
                                   {"heads", 2},
                                   {"width", 16},
                                   {"intermediate", 24},
                                   {"dropout", 0.2},
                                   {"attention_dropout", 0.2},
                                   {"classifier_dropout", 0.2}};

at::Tensor bert_input() {
  at::Tensor input = at::zeros({kSamples, 3, 8}, at::kLong);
  input.select(1, 0).copy_(drawn({kSamples, 8}, 22) + 1);
  input.select(1, 2).fill_(1);
  return input;
}

TEST(Layout, GptWithDropout) {
  const at::Tensor tokens = drawn({kSamples, 9}, 23);
  expect_the_same_on_any_layout(
      {"gpt",
       {{"vocabulary", 23}, {"context", 8}, {"layers", 2}, {"heads", 2}, {"width", 16}, {"dropout", 0.2}},
       std::make_shared<Rows>(tokens.narrow(1, 0, 8).contiguous(), tokens.narrow(1, 1, 8).contiguous())});
}

TEST(Layout, BertClassifierWithDropoutAndFrozenEmbeddings) {
  expect_the_same_on_any_layout(
      {"bert", kSmallBert, std::make_shared<Rows>(bert_input(), drawn({kSamples}, 2)), {"embeddings"}});
}

TEST(Layout, BertMaskedLanguageModelWithDropout) {
  nlohmann::json config = kSmallBert;
  config["task"] = "mlm";
  std::vector<std::string> words = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < 18; ++i) words.push_back("w" + std::to_string(i));
  const auto tokenizer = std::make_shared<const WordPiece>(words, WordPiece::Options{});
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < kSamples * 6 - 4; ++i)
    tokens.push_back(5 + static_cast<std::int32_t>(i * i % 18));
  expect_the_same_on_any_layout(
      {"bert", config, std::make_shared<MaskedText>(tokens, tokenizer, 8, /*seed=*/1, "memory")});
}

TEST(Layout, ConvolutionsWithSynchronisedBatchNormAndDropout) {
  const at::Tensor images = at::randn({kSamples, 1, 8, 8}, at::detail::createCPUGenerator(6)) + 3;
  // Each accumulated pass is normalised on its own, unlike one large pass.
  expect_the_same_on_any_layout({"convnet",
                                 {{"input_shape", {1, 8, 8}},
                                  {"features", {4}},
                                  {"hidden", 8},
                                  {"classes", 3},
                                  {"batch_norm", true},
                                  {"dropout", 0.3}},
                                 std::make_shared<Rows>(images, drawn({kSamples}, 3))},
                                /*accumulates=*/false);
}

// A model with local batch normalisation on every rank, and experts if the strategy needs them.
Model normed_model(bool has_experts) {
  static std::mutex mutex;  // the default generator is shared
  const std::lock_guard lock(mutex);
  torch::manual_seed(7);
  auto module = std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(8, 16),
                                                            torch::nn::BatchNorm1d(16), torch::nn::Tanh());
  if (has_experts) module->push_back(MixtureOfExperts(ExpertsConfig{.width = 16, .inner = 8, .experts = 2}));
  module->push_back(torch::nn::Linear(16, 8));
  Model model;
  model.name = "normed";
  model.config = nlohmann::json::object();
  model.forward = [raw = module.get()](const at::Tensor& input) { return raw->forward(input); };
  model.module = module;
  return model;
}

// Running statistics differ between ranks after a step. Validation uses the same model as the checkpoint,
// although every rank computes some of the batches.
TEST(Layout, ValidatedModelIsTheSavedOne) {
  struct Way {
    std::string strategy;
    Mesh mesh = {};
  };
  for (const Way& way :
       {Way{"ddp"}, Way{"zero1"}, Way{"zero3"}, Way{"expert"}, Way{"ddp", {{"data", 2}, {"pipeline", 2}}}}) {
    SCOPED_TRACE(way.strategy + " on a mesh of " + std::to_string(way.mesh.size()));
    const TemporaryDirectory directory;
    run_ranks(way.mesh.empty() ? 2 : 4, "native", [&](Context& context) {
      const auto strategy = way.mesh.empty()
                                ? all_strategies().make(way.strategy, context)
                                : strategy_on_mesh(all_strategies(), way.strategy, context.mesh(way.mesh),
                                                   [](const std::string&) { return OptionValues(); });
      Trainer trainer(*strategy, normed_model(way.strategy == "expert"));
      trainer.compile(testing::adamw());
      const auto validation = std::make_shared<testing::Digits>(40, 2);
      const FitResult fitted =
          trainer.fit(std::make_shared<testing::Digits>(48),
                      {.steps = 3, .batch_size = 8, .validation = validation, .validation_batch_size = 8});
      trainer.save(directory.path(), /*keep=*/1);
      trainer.load_weights(directory.path());
      EXPECT_EQ(trainer.evaluate(*validation, {.batch_size = 8}).at("loss"), fitted.validation.at("loss"));
      barrier(context.world());
    });
  }
}

}  // namespace
}  // namespace rondo::layout_test
