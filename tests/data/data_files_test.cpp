// Files of the samples of each kind, and tables in several files.
#include "rondo/data/data_files.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/dataset.h"
#include "rondo/data/mixture.h"
#include "rondo/data/open.h"
#include "rondo/data/subset.h"
#include "rondo/data/token_options.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::data_files_test {
namespace {

using testing::expect_facts;
using testing::message_of;
using Starts = std::vector<std::int64_t>;

Starts starts_of(const char* kind, const TemporaryDirectory& directory, const DataOptions& options) {
  return file_starts_of(*open_data(kind, directory.path(), options).train);
}

TEST(DataFiles, TextWindowBelongsToItsFirstFile) {
  const TemporaryDirectory directory;
  directory.write("a.txt", std::string(21, 'a'));
  directory.write("b.txt", std::string(3, 'b'));  // no window begins in this file
  directory.write("c.txt", std::string(40, 'c'));
  // Windows of 10 begin at 0, 10, 20, 30, 40, 50; the second file ends at 24.
  EXPECT_EQ(starts_of("text", directory, {.validation_fraction = 0, .context = 10}), (Starts{0, 3, 6}));
  // The tail used for validation is not in the files for training.
  EXPECT_EQ(starts_of("text", directory, {.validation_fraction = 0.55, .context = 10}), (Starts{0, 2}));
}

TEST(DataFiles, OfTokensAndCifarAndChosenSamples) {
  const TemporaryDirectory tokens;
  tokens.write("x0.bin", std::string(80, '\0'));  // 40 tokens of two bytes
  tokens.write("x1.bin", std::string(60, '\0'));
  DataOptions options{.validation_fraction = 0, .context = 8};
  options.of_kind.edit<TokenOptions>().vocabulary = 5;
  EXPECT_EQ(starts_of("tokens", tokens, options), (Starts{0, 5, 8}));
  const TemporaryDirectory cifar;
  for (const int batch : {1, 2, 3})
    cifar.write(str("data_batch_", batch, ".bin"), std::string(3073 * batch, '\1'));
  const OpenedData images = open_data("cifar10", cifar.path(), {.validation_fraction = 0});
  EXPECT_EQ(file_starts_of(*images.train), (Starts{0, 1, 3, 6}));
  EXPECT_EQ(file_starts_of(Subset(images.train, {1, 2, 4})), (Starts{0, 2, 3})) << "none of the first file";
  EXPECT_EQ(file_starts_of(Subset(images.train, {4, 1})), Starts()) << "files do not follow each other";
  EXPECT_EQ(file_starts_of(Mixture({images.train, images.train}, {1, 2}, 0)), Starts());
  EXPECT_EQ(file_starts_of(TensorDataset({torch::zeros({4, 2})}, {torch::zeros({4}, torch::kLong)}, 2)),
            Starts());
}

TEST(DataFiles, AFolderOfTablesIsOneTable) {
  const TemporaryDirectory directory;
  directory.write("1.csv", "a,b,kind\n0,1,cat\n2,1,cat\n");  // only one class
  directory.write("2.csv", "a,b,kind\n4,1,dog\n6,1,bee\n8,1,cat\n");
  directory.write(".hidden", "not a table");
  const OpenedData data = open_data("auto", directory.path(), {.validation_fraction = 0});
  EXPECT_EQ(data.kind, "csv");
  EXPECT_EQ(data.train->info().class_names, (std::vector<std::string>{"bee", "cat", "dog"}));
  EXPECT_EQ(file_starts_of(*data.train), (Starts{0, 2, 5}));
  const Batch all = data.train->get(std::vector<std::int64_t>{0, 1, 2, 3, 4});
  EXPECT_TRUE(torch::equal(all.target(), torch::tensor({1, 1, 2, 0, 1}, torch::kLong)));
  EXPECT_NEAR(all.input().sum().item<double>(), 0, 1e-6) << "one scale for all files";
  EXPECT_FLOAT_EQ(all.input()[4][0].item<float>(), 4 / std::sqrt(8.0F));

  directory.write("3.csv", "a,c,kind\n4,1,dog\n");
  expect_facts(message_of<DataError>([&] { open_data("csv", directory.path()); }),
               {"3.csv", "a, c", "1.csv", "a, b"});
  directory.write("readme.txt", "words");
  EXPECT_EQ(open_data("auto", directory.path(), {.context = 4}).kind, "text");
  expect_facts(message_of<DataError>([&] { open_data("csv", directory.path()); }),
               {directory.path().c_str(), ".csv"});
}

}  // namespace
}  // namespace rondo::data_files_test
