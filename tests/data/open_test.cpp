#include "rondo/data/open.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/types.h>

#include <numeric>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/data/csv.h"
#include "rondo/data/data_kinds.h"
#include "rondo/data/data_options.h"
#include "rondo/data/images.h"
#include "rondo/data/subset.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::open_test {
namespace {

using testing::expect_facts;
using testing::message_of;

std::string failure(const std::string& kind, const std::string& path) {
  return message_of<DataError>([&] { open_data(kind, path); });
}

TEST(OpenData, TellsTheKindFromTheContent) {
  const TemporaryDirectory directory;
  std::string prose;
  for (int i = 0; i < 60; ++i)
    prose += "It was a dark, stormy night, and line " + std::to_string(i) + " was like it.\n";
  std::string table;
  for (int i = 0; i < 20; ++i) table += std::to_string(i) + ",0.5," + (i % 2 ? "yes" : "no") + "\n";
  EXPECT_EQ(open_data("auto", directory.write("prose", prose)).kind, "text");
  EXPECT_EQ(open_data("auto", directory.write("table", table)).kind, "csv");
  EXPECT_EQ(open_data("text", directory.write("table", table), {.context = 16}).kind, "text") << "forced";
  EXPECT_EQ(open_data("auto", directory.path()).kind, "text");
  // A malformed table is reported as such instead of being used as prose.
  expect_facts(failure("auto", directory.write("broken.csv", prose)), {"broken.csv'", "line"});
}

TEST(OpenData, ErrorsComeBeforeAnyWork) {
  const TemporaryDirectory directory;
  expect_facts(
      message_of<UsageError>([] { open_data("parquet", "anything"); }),
      {"'parquet'", "auto", "cifar10", "cifar100", "csv", "idx", "labelled_text", "masked_text", "text"});
  expect_facts(message_of<UsageError>([] { open_data("auto", ""); }), {"path", "empty"});
  expect_facts(failure("auto", directory / "gone"), {"gone", "No such file"});
  expect_facts(failure("auto", directory.path()), {"empty"});
  expect_facts(failure("auto", directory.write("empty", "")), {"empty"});
  expect_facts(failure("auto", directory.write("noise.dat", std::string("\1\2\0\3", 4))),
               {"noise.dat", "kind"});
  expect_facts(failure("csv", directory.write("latin.csv",
                                              "x,kind\n1,\xb0"
                                              "C\n2,low\n")),
               {"latin.csv",
                "\\xb0"
                "C",
                "UTF-8"});
  const std::string pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_facts(failure("text", pipe), {"regular file"});
  expect_facts(failure("csv", directory.path()), {"regular file"});
}

TEST(Split, CoversEverySampleOnce) {
  for (const double fraction : {0.0, 0.1, 0.5, 0.001}) {
    const SplitIndices split = split_indices(101, fraction, 5);
    std::set<std::int64_t> all(split.train.begin(), split.train.end());
    all.insert(split.validation.begin(), split.validation.end());
    EXPECT_EQ(all.size(), 101U);
    EXPECT_EQ(split.train.size() + split.validation.size(), 101U);
    EXPECT_EQ(split.validation.empty(), fraction == 0.0);
  }
  EXPECT_EQ(split_indices(50, 0.2, 1).validation, split_indices(50, 0.2, 1).validation);
  EXPECT_NE(split_indices(50, 0.2, 1).validation, split_indices(50, 0.2, 2).validation);
  EXPECT_THROW(split_indices(1, 0.5, 0), UsageError);
  EXPECT_THROW(split_indices(10, -0.1, 0), UsageError);
  EXPECT_THROW(split_indices(10, 1.0, 0), UsageError);
}

// Damages `file` in one of several ways.
std::string damaged(std::string file, RandomStream& random) {
  switch (random.below(4)) {
    case 0:
      file.resize(random.below(file.size() + 1));
      break;
    case 1:
      for (int i = 0; i < 4; ++i) file[random.below(file.size())] = static_cast<char>(random());
      break;
    case 2:
      file.insert(random.below(file.size() + 1), random.below(20) + 1, static_cast<char>(random()));
      break;
    default:
      file.erase(random.below(file.size()), random.below(30) + 1);
  }
  return file;
}

// The parser either accepts a file with a complete result or throws DataError. With the sanitizers, this also
// finds out-of-bounds reads.
class DamagedFiles : public ::testing::Test {
 protected:
  void SetUp() override { random_ = std::make_unique<RandomStream>(11); }
  void try_many(const std::string& good, int rounds, int least_refused,
                const std::function<void(const std::string&)>& parse) {
    int accepted = 0, refused = 0;
    for (int round = 0; round < rounds; ++round) {
      const std::string file = damaged(good, *random_);
      try {
        parse(file);
        ++accepted;
      } catch (const DataError& error) {
        expect_facts(error.what(), {"file"});
        ++refused;
      }
    }
    EXPECT_GT(accepted, 0);
    EXPECT_GE(refused, least_refused);
  }

 private:
  std::unique_ptr<RandomStream> random_;
};

TEST_F(DamagedFiles, Idx) {
  std::string good("\0\0\x08\x03\0\0\0\2\0\0\0\5\0\0\0\4", 16);
  good.append(40, 'p');
  try_many(good, 3000, 300, [](const std::string& file) {
    const IdxView view =
        parse_idx({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, "file", 3);
    EXPECT_EQ(static_cast<std::int64_t>(view.values.size()), view.shape[0] * view.shape[1] * view.shape[2]);
  });
}

TEST_F(DamagedFiles, Csv) {
  std::string good = "w,h,\"the kind\"\n";
  for (int i = 0; i < 12; ++i)
    good += std::to_string(i) + ",\"1.5\",\"a \"\"quoted\"\" name\"\n2,3,other\r\n";
  try_many(good, 3000, 300, [](const std::string& file) {
    const CsvTable table = parse_csv(file, "file", "");
    EXPECT_EQ(table.features.size(), table.labels.size() * table.columns.size());
    for (const std::int64_t label : table.labels) {
      EXPECT_LT(label, static_cast<std::int64_t>(table.class_names.size()));
    }
  });
}

TEST_F(DamagedFiles, Cifar) {
  const TemporaryDirectory directory;
  std::string good;
  for (char i = 0; i < 3; ++i) good += i + std::string(3072, 'c');
  try_many(good, 200, 20, [&](const std::string& file) {
    const auto mapped = std::make_shared<MappedInput>(directory.write("file.bin", file));
    EXPECT_EQ(parse_cifar(mapped, kCifar10).labels.size(), file.size() / 3073);
  });
}

TEST_F(DamagedFiles, ThroughTheFrontDoor) {
  const TemporaryDirectory directory;
  std::string good = "w,h,kind\n";
  for (int i = 0; i < 12; ++i) good += std::to_string(i) + ",1.5,a\n2,3,b\n";
  for (const char* name : {"file.dat", "file.csv"}) {
    try_many(good, 200, 1, [&](const std::string& file) {
      const OpenedData data = open_data("auto", directory.write(name, file), {.context = 8});
      std::vector<std::int64_t> all(static_cast<std::size_t>(data.train->size()));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(data.train->get(all).samples, data.train->size());
    });
  }
}

// Command lines offer exactly the existing kinds.
TEST(DataKinds, AreAllDeclared) {
  std::vector<std::string> declared;
  for (const Declaration& entry : declared_data_kinds()) declared.push_back(entry.name);
  EXPECT_EQ(declared,
            (std::vector<std::string>{"cifar10", "cifar100", "csv", "idx", "image_folder", "labelled_text",
                                      "masked_text", "regression", "text", "tokens", "webdataset"}));
  EXPECT_EQ(declared, data_kinds());
}

TEST(DataKinds, EachHasItsOptionsStruct) {
  for_each_data_kind([](auto kind) {
    using Kind = decltype(kind);
    for (const Declaration& declared : Kind::declarations())
      EXPECT_EQ(declared.options.type(), std::type_index(typeid(typename Kind::Options))) << declared.name;
  });
}

TEST(DataKinds, TextReachesOptionsOfKindsThatTakeIt) {
  const KindOptions options = read_kind_options({{"label-column", "2"},
                                                 {"extensions", "txt,md"},
                                                 {"vocabulary-size", "7"},
                                                 {"image-size", "9"},
                                                 {"shuffle-window", "3"},
                                                 {"layers", "4"}});
  EXPECT_EQ(options.get<LabelColumnOption>().label_column, "2");
  EXPECT_EQ(options.get<TextOptions>().extensions, (std::vector<std::string>{"txt", "md"}));
  EXPECT_EQ(options.get<ExtensionsOption>().extensions, (std::vector<std::string>{"txt", "md"}));
  EXPECT_EQ(options.get<TokenOptions>().vocabulary, 7);
  EXPECT_EQ(options.get<ImageOptions>().size, 9);
  EXPECT_EQ(options.get<ImageOptions>().shuffle_window, 3);
  expect_facts(message_of<UsageError>([] {
                 read_kind_options({{"image-size", "0"}});
               }),
               {"--image-size", "0"});
}

TEST(DataKinds, ACopyOfOptionsIsItsOwn) {
  DataOptions first{.of_kind = TextOptions{{.extensions = {"txt"}}, {}}};
  DataOptions second = first;
  second.of_kind.edit<TextOptions>().extensions = {"md"};
  second.of_kind.edit<TokenOptions>().vocabulary = 5;
  EXPECT_EQ(first.of_kind.get<TextOptions>().extensions, std::vector<std::string>{"txt"});
  EXPECT_EQ(first.of_kind.get<TokenOptions>().vocabulary, std::nullopt);
  EXPECT_EQ(second.of_kind.get<TokenOptions>().vocabulary, 5);
}

}  // namespace
}  // namespace rondo::open_test
