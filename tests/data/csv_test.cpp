#include "rondo/data/csv.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>

#include "rondo/base/error.h"
#include "rondo/data/csv_reader.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::csv_test {
namespace {

using testing::expect_facts;
using testing::message_of;

using Strings = std::vector<std::string>;

CsvTable parse(const std::string& text, const std::string& label = "") {
  return parse_csv(text, "table", label);
}

std::string failure(const std::string& text, const std::string& label = "") {
  return message_of<DataError>([&] { parse(text, label); });
}

std::vector<CsvRow> rows(const std::string& text, char delimiter = ',') {
  CsvReader reader(text, delimiter, "table");
  std::vector<CsvRow> all;
  for (CsvRow row; reader.next(row);) all.push_back(row);
  return all;
}

TEST(CsvReader, FollowsRfc4180) {
  const auto all = rows("a, b ,c\r\n\"x,y\",\"say \"\"hi\"\"\",\"two\nlines\"\n\n,,\nlast,\"\",1");
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].fields, (Strings{"a", "b", "c"}));
  EXPECT_EQ(all[1].fields, (Strings{"x,y", "say \"hi\"", "two\nlines"}));
  EXPECT_EQ(all[1].line, 2);
  EXPECT_EQ(all[2].fields, (Strings{"", "", ""}));
  EXPECT_EQ(all[2].line, 5);
  EXPECT_EQ(all[3].fields, (Strings{"last", "", "1"}));
  EXPECT_EQ(rows("\xef\xbb\xbf"
                 "a\tb",
                 '\t')[0]
                .fields,
            (Strings{"a", "b"}));
  EXPECT_EQ(rows("1,")[0].fields, (Strings{"1", ""}));
  EXPECT_TRUE(rows("\n\r\n").empty());
}

TEST(CsvReader, ErrorsNameTheLine) {
  const auto failed = [](const std::string& text) { return message_of<DataError>([&] { rows(text); }); };
  expect_facts(failed("a,b\n1,\"open\n\n"), {"'table'", "line 2", "quote"});
  expect_facts(failed("a\n\"x\"y,1\n"), {"'table'", "line 2", "quote", "field 1"});
  expect_facts(failed(std::string("a\n1,\0", 5)), {"'table'", "line 2", "offset 4"});
}

TEST(Csv, ReadsTablesWithAndWithoutHeader) {
  const CsvTable named = parse("width,height,kind\n1,2.5,cat\n-3e1,+4,dog\n5,6,cat\n");
  EXPECT_EQ(named.columns, (Strings{"width", "height"}));
  EXPECT_EQ(named.class_names, (Strings{"cat", "dog"}));
  EXPECT_EQ(named.features, (std::vector<float>{1, 2.5, -30, 4, 5, 6}));
  EXPECT_EQ(named.labels, (std::vector<std::int64_t>{0, 1, 0}));
  const CsvTable plain = parse("1\t2\t10\n3\t4\t9\n5\t6\t10\n");
  EXPECT_EQ(plain.columns, (Strings{"column 0", "column 1"}));
  EXPECT_EQ(plain.class_names, (Strings{"9", "10"})) << "whole numbers in numeric order";
  EXPECT_EQ(plain.labels, (std::vector<std::int64_t>{1, 0, 1}));
  EXPECT_EQ(parse("1;a\n2;b").labels.size(), 2U);
}

TEST(Csv, TheLabelIsAnyColumn) {
  const std::string text = "kind,w,h\ncat,1,2\ndog,3,4\n";
  for (const char* label : {"kind", "0"}) {
    const CsvTable table = parse(text, label);
    EXPECT_EQ(table.columns, (Strings{"w", "h"}));
    EXPECT_EQ(table.class_names, (Strings{"cat", "dog"}));
  }
  EXPECT_EQ(parse("0,1.5\n1,2.5\n", "0").features, (std::vector<float>{1.5, 2.5}));
  expect_facts(message_of<UsageError>([&] { parse(text, "colour"); }), {"colour", "kind", "w", "h"});
  expect_facts(message_of<UsageError>([&] { parse(text, "3"); }), {"0 to 2"});
}

TEST(Csv, ErrorsNameTheLineAndExpectation) {
  expect_facts(failure(""), {"'table'", "empty"});
  expect_facts(failure("a,b\n"), {"header"});
  expect_facts(failure("alone\n1\n"), {"'table'", "line 1", "one field"});
  expect_facts(failure("a,b,k\n1,2,x\n1,y\n"), {"'table'", "line 3", "2 fields", "3"});
  expect_facts(failure("a,b,k\n1,2,x\n1,two,y\n"), {"'table'", "line 3", "b", "'two'"});
  expect_facts(failure("1,2,x\n,2,y\n"), {"'table'", "line 2", "column 0", "''"});
  expect_facts(failure("a,k\nnan,x\n1,y"), {"'table'", "line 2, a", "'nan'"});
  expect_facts(failure("a,k\n1e99,x\n1,y"), {"'table'", "line 2, a", "'1e99'"});
  expect_facts(failure("a,k\n1,x\n1,"), {"'table'", "line 3", "label"});
  expect_facts(failure("a,price\n1,2.5\n1,3.5"), {"'table'", "line 2", "2.5"});
  expect_facts(failure("a,k\n1,x\n2,x\n"), {"label", "'x'"});
}

TEST(Csv, ValidationRowsDoNotInfluenceTheScale) {
  const TemporaryDirectory directory;
  std::string text = "a,constant,k\n";
  for (int i = 0; i < 40; ++i) text += std::to_string(i * i) + ",7," + std::to_string(i % 2) + "\n";
  const std::string path = directory.write("rows.data", text);
  const OpenedData data = open_data("auto", path, {.validation_fraction = 0.25, .split_seed = 3});
  EXPECT_EQ(data.kind, "csv");
  EXPECT_EQ(data.train->size(), 30);
  EXPECT_EQ(data.validation->size(), 10);
  std::vector<std::int64_t> all(30);
  std::iota(all.begin(), all.end(), 0);
  const at::Tensor features = data.train->get(all).input();
  EXPECT_NEAR(features.select(1, 0).mean().item<double>(), 0, 1e-5);
  EXPECT_NEAR(features.select(1, 0).std(false).item<double>(), 1, 1e-5);
  EXPECT_TRUE(features.select(1, 1).eq(0).all().item<bool>()) << "a constant column is not divided by zero";
  EXPECT_EQ(data.train->info().model_config(), (nlohmann::json{{"input_shape", {2}}, {"classes", 2}}));
  EXPECT_EQ(data.train->info().class_names, (Strings{"0", "1"}));
  const OpenedData other = open_data("csv", path, {.validation_fraction = 0.25, .split_seed = 4});
  EXPECT_FALSE(at::equal(other.validation->get(std::vector<std::int64_t>{0, 1, 2}).input(),
                         data.validation->get(std::vector<std::int64_t>{0, 1, 2}).input()));
}

TEST(Regression, PredictsTheNumberOfAColumn) {
  TemporaryDirectory directory;
  const std::string path =
      directory.write("houses.csv", "rooms,size,price\n1,20,100.5\n2,40,200\n3,60,-1e3\n");
  const OpenedData data = open_data("regression", path, {.validation_fraction = 0});
  std::vector<std::int64_t> rows{0, 1, 2};
  const Batch batch = data.train->get(rows);
  EXPECT_TRUE(torch::equal(batch.target(), torch::tensor({{100.5F}, {200.F}, {-1000.F}})));
  EXPECT_NEAR(batch.input().mean(0).abs().sum().item<float>(), 0, 1e-6);
  EXPECT_EQ(data.train->info().model_config(), nlohmann::json({{"input_shape", {2}}, {"classes", 1}}));
  expect_facts(message_of<DataError>(
                   [&] { open_data("regression", directory.write("bad.csv", "1,2,3\n4,5,dear\n"), {}); }),
               {"bad.csv", "line 2", "dear", "number"});
}

// A model that is trained judges other tables with what it knows.
TEST(KnownData, StandardisesAndNamesClassesAsInTraining) {
  TemporaryDirectory directory;
  const OpenedData train =
      open_data("csv", directory.write("train.csv", "a,b,kind\n0,1,cat\n2,1,dog\n4,1,owl\n"),
                {.validation_fraction = 0});
  const DatasetInfo& info = train.train->info();
  const DataOptions options{.validation_fraction = 0,
                            .known = {info.class_names, info.mean, info.deviation, "run/data.json"}};
  const std::vector<std::int64_t> first{0};
  const auto one = [&](const std::string& text) {
    return open_data("csv", directory.write("new.csv", text), options).train->get(first);
  };
  const Batch owl = one("a,b,kind\n4,1,owl\n");
  const std::vector<std::int64_t> third{2};
  EXPECT_TRUE(torch::equal(owl.input(), train.train->get(third).input()));
  EXPECT_EQ(owl.target().item<std::int64_t>(), 2);
  // Without the column of labels.
  const Batch unlabelled = one("a,b\n4,1\n");
  EXPECT_TRUE(torch::equal(unlabelled.input(), owl.input()));
  EXPECT_EQ(unlabelled.target().item<std::int64_t>(), -100);
  expect_facts(message_of<DataError>([&] { one("a,b,kind\n4,1,fox\n"); }),
               {"line 2", "fox", "cat", "owl", "run/data.json"});
  expect_facts(message_of<DataError>([&] { one("a,b,c,kind\n4,1,1,owl\n"); }),
               {"3", "2", "features", "run/data.json"});
}

}  // namespace
}  // namespace rondo::csv_test
