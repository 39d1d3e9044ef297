#include "rondo/data/torch_dataset.h"

#include <gtest/gtest.h>
#include <torch/data/datasets/tensor.h>
#include <torch/data/transforms/stack.h>
#include <torch/types.h>

#include <atomic>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/data/loader.h"
#include "rondo/data/sampler.h"

namespace rondo {
namespace {

// Sample i is {i, 2 i} with target i. Detects two threads using one copy at the same time.
class Numbers : public torch::data::datasets::Dataset<Numbers> {
 public:
  explicit Numbers(std::optional<std::size_t> size, std::int64_t width = 2) : size_(size), width_(width) {}
  Numbers(const Numbers& other) : Dataset(other), size_(other.size_), width_(other.width_) {}

  torch::data::Example<> get(std::size_t index) override {
    EXPECT_FALSE(busy_.exchange(true));
    const auto number = static_cast<double>(index);
    const at::Tensor data = torch::tensor({number, 2 * number}).narrow(0, 0, width_);
    busy_ = false;
    return {data, torch::scalar_tensor(static_cast<std::int64_t>(index), at::kLong)};
  }
  std::optional<std::size_t> size() const override { return size_; }

 private:
  std::optional<std::size_t> size_;
  std::int64_t width_;
  std::atomic<bool> busy_ = false;
};

TEST(TorchDataset, ReadsVectorsAndStackedExamples) {
  const auto check = [](const std::shared_ptr<const Dataset>& data) {
    EXPECT_EQ(data->size(), 5);
    EXPECT_EQ(data->info().input_shape, std::vector<std::int64_t>{2});
    EXPECT_EQ(data->info().classes, 5);
    const Batch batch = data->get(std::vector<std::int64_t>{3, 1, 3});
    EXPECT_EQ(batch.samples, 3);
    EXPECT_TRUE(at::equal(batch.input(), torch::tensor({{3., 6.}, {1., 2.}, {3., 6.}})));
    EXPECT_TRUE(at::equal(batch.target(), torch::tensor({3, 1, 3}, at::kLong)));
    const Batch none = data->get({});
    EXPECT_EQ(none.samples, 0);
    EXPECT_EQ(none.input().sizes(), (std::vector<std::int64_t>{0, 2}));
    EXPECT_THROW(data->get(std::vector<std::int64_t>{5}), UsageError);
  };
  check(from_torch(Numbers(5), 5));
  check(from_torch(Numbers(5).map(torch::data::transforms::Stack<>()), 5));
}

TEST(TorchDataset, OfExamplesWithoutTargetsHasNone) {
  const auto data = from_torch(torch::data::datasets::TensorDataset(torch::arange(6).view({3, 2})));
  const Batch batch = data->get(std::vector<std::int64_t>{2});
  EXPECT_TRUE(batch.targets.empty());
  EXPECT_TRUE(at::equal(batch.input(), torch::tensor({{4, 5}}, at::kLong)));
}

TEST(TorchDataset, IsReadByTheThreadsOfALoader) {
  const auto data = from_torch(Numbers(64));
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      for (std::int64_t index = 0; index < 64; ++index)
        EXPECT_EQ(data->get(std::vector<std::int64_t>{index}).target().item<std::int64_t>(), index);
    });
  }
  for (std::thread& reader : readers) reader.join();
}

TEST(TorchDataset, RefusesUnknownSizeAndMissingRows) {
  const auto error = [](const auto& make) -> std::string {
    try {
      make();
    } catch (const UsageError& refusal) {
      return refusal.what();
    }
    return {};
  };
  EXPECT_NE(error([] { from_torch(Numbers(std::nullopt)); }).find("has no size"), std::string::npos);
  // One example for all indices.
  struct Lazy {
    torch::data::Example<> get_batch(const std::vector<std::size_t>&) {
      return {torch::zeros({1, 2}), torch::zeros({1})};
    }
    std::optional<std::size_t> size() const { return 4; }
  };
  const auto lazy = from_torch(Lazy());
  EXPECT_NE(error([&] {
              lazy->get(std::vector<std::int64_t>{0, 1});
            }).find("1 rows for 2 samples"),
            std::string::npos);
}

}  // namespace
}  // namespace rondo
