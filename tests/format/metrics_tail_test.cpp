#include "rondo/format/metrics.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "rondo/base/error.h"
#include "tests/temporary_directory.h"

namespace rondo::metrics_tail_test {
namespace {

MetricsRow row(std::int64_t step) {
  MetricsRow row;
  row.step = step;
  row.loss = 1.5;
  return row;
}

std::vector<std::int64_t> steps_of(const MetricsTail::News& news) {
  std::vector<std::int64_t> steps;
  for (const MetricsRow& row : news.rows) steps.push_back(row.step);
  return steps;
}

TEST(MetricsTail, OfANamedPipeIsRefusedByName) {
  const TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "metrics.jsonl").c_str(), 0600), 0);
  try {
    MetricsTail(directory / "metrics.jsonl").read();
    ADD_FAILURE() << "nothing was said";
  } catch (const DataError& error) {
    const std::string said = error.what();
    EXPECT_NE(said.find("metrics.jsonl: it is a named pipe"), std::string::npos) << said;
  }
}

TEST(MetricsTail, ReturnsEachCompleteRowOnce) {
  const TemporaryDirectory directory;
  MetricsTail tail(directory / "metrics.jsonl");
  EXPECT_TRUE(tail.read().rows.empty()) << "there is no file yet";
  MetricsWriter writer(directory / "metrics.jsonl");
  writer.append(row(1));
  writer.append(row(2));
  EXPECT_EQ(steps_of(tail.read()), (std::vector<std::int64_t>{1, 2}));
  EXPECT_TRUE(tail.read().rows.empty());
  const std::string line = to_json_line(row(3));
  OutputFile file(directory / "metrics.jsonl", OutputFile::Mode::append);
  file.write(line.substr(0, 9));
  EXPECT_TRUE(tail.read().rows.empty()) << "half a line is no row";
  file.write(line.substr(9) + "\nno row\n");
  writer.append(row(4));
  EXPECT_EQ(steps_of(tail.read()), (std::vector<std::int64_t>{3, 4}));
}

// A long run's rows are thinned into a new file that replaces the old one.
TEST(MetricsTail, BeginsAgainWithAnotherFile) {
  const TemporaryDirectory directory;
  MetricsTail tail(directory / "metrics.jsonl");
  MetricsWriter(directory / "metrics.jsonl").append(row(1));
  EXPECT_FALSE(tail.read().from_the_start);
  replace_text_file(directory / "metrics.jsonl", to_json_line(row(2)) + "\n" + to_json_line(row(3)) + "\n");
  const MetricsTail::News news = tail.read();
  EXPECT_TRUE(news.from_the_start);
  EXPECT_EQ(steps_of(news), (std::vector<std::int64_t>{2, 3}));
}

}  // namespace
}  // namespace rondo::metrics_tail_test
