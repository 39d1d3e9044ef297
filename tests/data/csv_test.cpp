#include "rondo/data/csv.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>

#include "rondo/data/csv_reader.h"
#include "tests/data/temporary_directory.h"

namespace rondo {
namespace {

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
  expect_contains(failed("a,b\n1,\"open\n\n"), "'table', line 2: a quote is opened here and never closed");
  expect_contains(failed("a\n\"x\"y,1\n"), "'table', line 2: text after the closing quote of field 1");
  expect_contains(failed(std::string("a\n1,\0", 5)), "'table', line 2: a zero byte at offset 4");
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
  expect_contains(message_of<UsageError>([&] { parse(text, "colour"); }),
                  "expected one of kind, w, h or a number");
  expect_contains(message_of<UsageError>([&] { parse(text, "3"); }), "0 to 2");
}

TEST(Csv, ErrorsNameTheLineAndExpectation) {
  expect_contains(failure(""), "'table' is empty");
  expect_contains(failure("a,b\n"), "ends after its header");
  expect_contains(failure("alone\n1\n"), "'table', line 1: one field");
  EXPECT_EQ(failure("a,b,k\n1,2,x\n1,y\n"), "'table', line 3: 2 fields, expected 3");
  EXPECT_EQ(failure("a,b,k\n1,2,x\n1,two,y\n"), "'table', line 3, b: 'two', expected a finite number");
  EXPECT_EQ(failure("1,2,x\n,2,y\n"), "'table', line 2, column 0: '', expected a finite number");
  EXPECT_EQ(failure("a,k\nnan,x\n1,y"), "'table', line 2, a: 'nan', expected a finite number");
  EXPECT_EQ(failure("a,k\n1e99,x\n1,y"), "'table', line 2, a: '1e99', expected a finite number");
  EXPECT_EQ(failure("a,k\n1,x\n1,"), "'table', line 3: no label, expected a class");
  expect_contains(failure("a,price\n1,2.5\n1,3.5"), "'table', line 2: label 2.5, expected a class");
  expect_contains(failure("a,k\n1,x\n2,x\n"), "every label is 'x'");
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
  const at::Tensor features = data.train->get(all).input;
  EXPECT_NEAR(features.select(1, 0).mean().item<double>(), 0, 1e-5);
  EXPECT_NEAR(features.select(1, 0).std(false).item<double>(), 1, 1e-5);
  EXPECT_TRUE(features.select(1, 1).eq(0).all().item<bool>()) << "a constant column is not divided by zero";
  EXPECT_EQ(data.train->info().model_config(), (nlohmann::json{{"input_shape", {2}}, {"classes", 2}}));
  EXPECT_EQ(data.train->info().class_names, (Strings{"0", "1"}));
  const OpenedData other = open_data("csv", path, {.validation_fraction = 0.25, .split_seed = 4});
  EXPECT_FALSE(at::equal(other.validation->get(std::vector<std::int64_t>{0, 1, 2}).input,
                         data.validation->get(std::vector<std::int64_t>{0, 1, 2}).input));
}

}  // namespace
}  // namespace rondo
