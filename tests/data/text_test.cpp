#include "rondo/data/text.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>

#include "rondo/base/error.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::text_test {
namespace {

using testing::expect_facts;
using testing::message_of;

std::string bytes_of(const at::Tensor& tokens) {
  std::string text;
  for (std::int64_t i = 0; i < tokens.numel(); ++i)
    text.push_back(static_cast<char>(tokens[i].item<std::int64_t>()));
  return text;
}

// Returns the covered text: the inputs of all samples in order, and the last target.
std::string covered(const Dataset& data) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(data.size()));
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = data.get(all);
  for (std::int64_t i = 0; i < batch.samples; ++i) {
    EXPECT_EQ(bytes_of(batch.input()[i]).substr(1),
              bytes_of(batch.target()[i].slice(0, 0, batch.target().size(1) - 1)));
  }
  return bytes_of(batch.input().flatten()) + bytes_of(batch.target().flatten().slice(0, -1));
}

std::string alphabet(std::size_t size) {
  std::string text(size, ' ');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + (i * i + i / 26) % 26);
  return text;
}

TEST(Text, WindowsAreContiguousAndTargetsAreNextBytes) {
  const TemporaryDirectory directory;
  const std::string text = alphabet(101);
  const std::string path = directory.write("a.txt", text);
  const OpenedData data = open_data("text", path, {.validation_fraction = 0, .context = 10});
  EXPECT_EQ(data.validation, nullptr);
  EXPECT_EQ(data.train->size(), 10);
  EXPECT_EQ(covered(*data.train), text);
  const Batch batch = data.train->get(std::vector<std::int64_t>{3, 0, 3});
  EXPECT_EQ(batch.samples, 3);
  EXPECT_EQ(batch.input().scalar_type(), at::kLong);
  EXPECT_EQ(bytes_of(batch.input()[0]), text.substr(30, 10));
  EXPECT_EQ(bytes_of(batch.target()[0]), text.substr(31, 10));
  EXPECT_EQ(bytes_of(batch.input()[1]), text.substr(0, 10));
  EXPECT_EQ(data.train->get({}).input().sizes(), (std::vector<std::int64_t>{0, 10}));
  EXPECT_EQ(data.train->info().model_config(), (nlohmann::json{{"context", 10}, {"vocabulary", 256}}));
  EXPECT_EQ(data.train->info().unit, "tokens");
}

TEST(Text, EveryByteValueIsAToken) {
  const TemporaryDirectory directory;
  std::string text(257, ' ');
  for (int i = 0; i < 257; ++i) text[static_cast<std::size_t>(i)] = static_cast<char>(i);
  const OpenedData data =
      open_data("text", directory.write("all.bin", text), {.validation_fraction = 0, .context = 256});
  EXPECT_TRUE(at::equal(data.train->get(std::vector<std::int64_t>{0}).input()[0], at::arange(256)));
}

TEST(Text, ADirectoryIsOneTextInSortedOrder) {
  const TemporaryDirectory directory;
  directory.write("b.txt", "BBBBBBB");
  directory.write("a/z.txt", "azazaz");
  directory.write("a/y.md", "ayay");
  directory.write("a/empty.txt", "");
  directory.write("c.bin", std::string("C\0C", 3));
  directory.write(".git/config", "hidden");
  directory.write(".hidden", "hidden");
  const DataOptions options{.validation_fraction = 0, .context = 2};
  EXPECT_EQ(covered(*open_data("auto", directory.path(), options).train), "ayayazazazBBBBBBB");
  DataOptions only_txt = options;
  only_txt.of_kind.edit<TextOptions>().extensions = {".txt"};
  EXPECT_EQ(covered(*open_data("auto", directory.path(), only_txt).train), "azazazBBBBBBB");
  only_txt.of_kind.edit<TextOptions>().extensions = {"md"};
  EXPECT_EQ(covered(*open_data("auto", directory.path(), only_txt).train), "aya");
}

TEST(Text, ValidationIsTheTail) {
  const TemporaryDirectory directory;
  const std::string text = alphabet(1000);
  const std::string path = directory.write("a.txt", text);
  const OpenedData data = open_data("text", path, {.validation_fraction = 0.2, .context = 7});
  // 800 bytes: 114 windows of 7 and one more byte; 200 bytes: 28 windows.
  EXPECT_EQ(covered(*data.train), text.substr(0, 799));
  EXPECT_EQ(covered(*data.validation), text.substr(800, 197));
  // A small fraction still gives one whole window.
  const OpenedData small = open_data("text", path, {.validation_fraction = 0.001, .context = 7});
  EXPECT_EQ(small.validation->size(), 1);
  EXPECT_EQ(covered(*small.validation), text.substr(992));
}

TEST(Text, ErrorsSayWhatIsMissing) {
  const TemporaryDirectory directory;
  const auto failure = [](const std::string& path, const DataOptions& options = {}) {
    return message_of<DataError>([&] { open_data("text", path, options); });
  };
  expect_facts(failure(directory / "none.txt"), {"none.txt", "No such file"});
  expect_facts(failure(directory.path()), {"empty"});
  const std::string empty = directory.write("empty.txt", "");
  expect_facts(failure(empty), {"empty.txt'", "empty"});
  directory.write("binary.dat", std::string(100, '\0'));
  expect_facts(failure(directory.path()), {"1 binary", "1 empty"});
  const std::string tiny = directory.write("tiny.txt", alphabet(128));
  expect_facts(failure(tiny, {.validation_fraction = 0}), {"128 bytes", "129"});
  const std::string small = directory.write("small.txt", alphabet(257));
  expect_facts(failure(small), {"257 bytes", "258"});
  EXPECT_EQ(failure(directory.write("fits.txt", alphabet(258))), "no exception");
  DataOptions endings;
  endings.of_kind.edit<TextOptions>().extensions = {".py"};
  expect_facts(failure(directory.path(), endings), {".py"});
  const auto usage = [&](const DataOptions& options) {
    return message_of<UsageError>([&] { open_data("text", tiny, options); });
  };
  expect_facts(usage({.context = 0}), {"context", "0"});
  expect_facts(usage({.validation_fraction = 1.0}), {"fraction", "0", "1"});
  const OpenedData data = open_data("text", small, {.validation_fraction = 0});
  EXPECT_THROW(data.train->get(std::vector<std::int64_t>{2}), UsageError);
  EXPECT_THROW(data.train->get(std::vector<std::int64_t>{-1}), UsageError);
}

}  // namespace
}  // namespace rondo::text_test
