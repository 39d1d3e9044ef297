#include "rondo/data/csv.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
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
  EXPECT_EQ(named.features, (std::vector<double>{1, 2.5, -30, 4, 5, 6}));
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
  EXPECT_EQ(parse("0,1.5\n1,2.5\n", "0").features, (std::vector<double>{1.5, 2.5}));
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
  expect_facts(failure("a,k\n1e999,x\n1,y"), {"'table'", "line 2, a", "'1e999'"});
  expect_facts(failure("a;k\n1,5;x\n1;y"), {"'table'", "line 2, a", "'1,5'", "decimal point"});
  expect_facts(failure("a,k\n1,x\n1,"), {"'table'", "line 3", "label"});
  expect_facts(failure("a,price\n1,2.5\n1,3.5"), {"'table'", "line 2", "2.5"});
  expect_facts(failure("a,k\n1,x\n2,x\n"), {"label", "'x'"});
}

TEST(Csv, TheDelimiterIsJudgedByManyLines) {
  EXPECT_EQ(guess_delimiter("0,53;1\n0,7;0\n1,25;1\n"), ';');
  EXPECT_EQ(guess_delimiter("0,53;cat\n0,7;dog\n"), ';');
  EXPECT_EQ(guess_delimiter("0,53;1,5;1\n2;7,5;0\n"), ';');
  EXPECT_EQ(guess_delimiter("a, b and c;k\n1;x\n2;y\n"), ';') << "the first line has as many commas";
  EXPECT_EQ(guess_delimiter("1, 2 and c;k\n1;x\n2;y\n"), ';') << "the first line alone says a comma";
  EXPECT_EQ(guess_delimiter("1,2,a;b\n3,4,c;d\n"), ',') << "a class with a semicolon";
  EXPECT_EQ(guess_delimiter("\"x;y\",2\n\"z;w\",3\n"), ',') << "within quotes";
  EXPECT_EQ(guess_delimiter("1\t2,5\n3\t4,5\n"), '\t');
  EXPECT_EQ(guess_delimiter("1,2,x\n3,4,y\n5,6\n7,8,x\n"), ',') << "one line is damaged";
  EXPECT_EQ(guess_delimiter("alone\n"), ',');
  // Thirty-six decimal numbers are not classes.
  std::string text;
  for (int i = 0; i < 36; ++i) text += "0," + std::to_string(10 + i) + ";" + std::to_string(i % 2) + "\n";
  expect_facts(failure(text), {"'table'", "line 1", "'0,10'", "decimal point"});
}

TEST(Csv, FirstRowIsHeaderOrDataOrError) {
  const auto columns = [](const std::string& text, const std::string& label = "") {
    return parse(text, label).columns;
  };
  const Strings numbered = {"column 0", "column 1", "column 2"}, counted = {"0", "1", "2"};
  // Column numbers, for any labels.
  EXPECT_EQ(columns("0,1,2,target\n5,6,7,1\n8,9,7,0\n"), counted);
  EXPECT_EQ(columns("0,1,2,target\n5,6,7,cat\n8,9,7,dog\n5,6,7,cat\n8,9,7,dog\n"), counted);
  EXPECT_EQ(parse("0,1,2,target\n5,6,7,1\n8,9,7,0\n").class_names, (Strings{"0", "1"}));
  EXPECT_EQ(columns("target,0,1,2\n1,5,6,7\n0,8,9,7\n", "0"), counted);
  EXPECT_EQ(parse_csv("0,1,2,price\n5,6,7,1.5\n", "table", "", CsvLabels::numbers).columns, counted);
  // Rows of values.
  EXPECT_EQ(columns("3.2e-60,1,2,1\n5,6,7,0\n"), numbered) << "too small for float32, not for a number";
  EXPECT_EQ(columns("1,2,3,cat\n4,5,6,dog\n"), numbered) << "each class has one row";
  EXPECT_EQ(columns("0.5,2,3,rare\n4,5,6,dog\n4,5,6,dog\n4,5,6,cat\n4,5,6,cat\n"), numbered);
  EXPECT_EQ(columns("4,5,6,dog\n4,5,6,cat\n4,5,6,cat\n4,5,6,dog\n"), numbered);
  // If the label column is given by name, the first row holds names, whatever its other fields are.
  EXPECT_EQ(columns("2019,2020,2021,country\n5,6,7,1\n8,9,7,0\n", "country"),
            (Strings{"2019", "2020", "2021"}));
  EXPECT_EQ(columns(",a,kind\n1,2,x\n3,4,y\n"), (Strings{"", "a"})) << "an index without a name";
  for (const char* text : {
           "2019,2020,2021,country\n5,6,7,1\n8,9,7,0\n",                    // a name above numbers
           "2019,2020,2021,country\n5,6,7,x\n8,9,7,y\n5,6,7,x\n8,9,7,y\n",  // years as names
           "150,4,setosa,versicolor\n5,6,7,0\n8,9,7,1\n",                   // header of some published files
           "a,b,5\n1,2,0\n1,2,1\n",                                         // a number above a label
           "NA,NA,cat\n1,2,dog\n3,4,cat\n",                                 // no known value
           "1,NA,cat\n1,2,dog\n3,4,cat\n",                                  // a missing number
           "0,1,2,3\n5,6,7,1\n8,9,7,0\n5,6,7,1\n8,9,7,0\n",                 // possibly column numbers
       }) {
    const std::string first(text, std::string_view(text).find('\n'));
    const std::string shown = join(split(first, ','), ", ");
    expect_facts(failure(text), {"'table'", "line 1", "neither", shown.c_str()});
  }
  expect_facts(
      message_of<DataError>([] { parse_csv("2019,2020,price\n5,6,1.5\n", "table", "", CsvLabels::numbers); }),
      {"line 1", "2019, 2020, price"});
}

TEST(Csv, NumbersKeepTheirDifferences) {
  const TemporaryDirectory directory;
  std::string text = "time,tiny,huge,constant,noise,k\n";
  for (int i = 0; i < 50; ++i) {
    text += std::to_string(1'700'000'000 + i) + "," + std::to_string(1 + i % 7) + "e-200," +
            std::to_string(1 + i % 5) + "e200,0.1," + (i % 2 != 0 ? "0.3" : "0.30000000000000004") + "," +
            std::to_string(i % 2) + "\n";
  }
  const OpenedData data = open_data("csv", directory.write("times.csv", text), {.validation_fraction = 0});
  std::vector<std::int64_t> all(50);
  std::iota(all.begin(), all.end(), 0);
  const at::Tensor features = data.train->get(all).input();
  // Standardised like numpy does in float64.
  const at::Tensor times = torch::arange(50, torch::kDouble);
  EXPECT_TRUE(torch::allclose(features.select(1, 0).to(torch::kDouble),
                              (times - times.mean()) / times.std(false), 1e-6, 1e-6));
  for (const std::int64_t column : {1, 2}) {
    const at::Tensor values = (torch::arange(50, torch::kDouble) % (column == 1 ? 7 : 5)) + 1;
    EXPECT_TRUE(torch::allclose(features.select(1, column).to(torch::kDouble),
                                (values - values.mean()) / values.std(false), 1e-6, 1e-6))
        << column;
  }
  EXPECT_TRUE(features.select(1, 3).eq(0).all().item<bool>());
  EXPECT_LT(features.select(1, 4).abs().max().item<float>(), 1e-10) << "a rounding is no difference";
  EXPECT_EQ(parse("1e-400,1,x\n2,-1e-99999,y\n").features, (std::vector<double>{0, 1, 2, 0}));
  expect_facts(message_of<DataError>([&] {
                 open_data("csv", directory.write("far.csv", "a,k\n1e308,x\n-1e308,y\n1e308,x\n"),
                           {.validation_fraction = 0});
               }),
               {"far.csv'", "a", "too large"});
  expect_facts(message_of<DataError>(
                   [&] { open_data("regression", directory.write("far.csv", "a,b\n1,1e99\n2,3\n"), {}); }),
               {"far.csv'", "line 2", "1e+99", "float32"});
}

// A table with an error is still detected by its rows, so that the error is reported instead of training on
// its bytes.
TEST(Csv, TableWithErrorIsStillDetectedAsTable) {
  const TemporaryDirectory directory;
  std::string rows;
  for (int i = 0; i < 30; ++i) rows += std::to_string(i) + ",2.5," + (i % 2 != 0 ? "cat" : "dog") + "\n";
  for (const std::string& text : {"150,4,setosa\n" + rows + "1,,cat\n", "150,names,2\n" + rows,
                                  rows + "7,8\n" + rows, rows + "7,NA,cat\n" + rows})
    expect_facts(message_of<DataError>([&] { open_data("auto", directory.write("rows.data", text), {}); }),
                 {"rows.data'", "line"});
  EXPECT_EQ(open_data("auto", directory.write("rows.data", rows), {}).kind, "csv");
  EXPECT_EQ(open_data("auto",
                      directory.write("prose.data",
                                      "One, two.\nThree, four.\nFive, six, seven.\n" + rows.substr(0, 12)),
                      {.context = 8})
                .kind,
            "text");
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

// A trained model evaluates other tables with its own means and classes.
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
  // Without the label column.
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
