#include "rondo/format/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rondo/base/error.h"
#include "tests/temporary_directory.h"

namespace rondo::metrics_test {
namespace {

TEST(Metrics, RowsComeBackAsWritten) {
  const TemporaryDirectory directory;
  MetricsRow row;
  row.rank = 1;
  row.step = 12;
  row.epoch = 2;
  row.elapsed_s = 3.25;
  row.loss = 2.5;
  row.learning_rate = 3e-4;
  row.peak_bytes = 1ULL << 40;
  MetricsRow validation;
  validation.step = 12;
  validation.validation_loss = 2.75;
  {
    MetricsWriter writer(directory / "metrics.jsonl");
    writer.append(row);
    writer.append(validation);
  }
  EXPECT_EQ(read_all(directory / "metrics.jsonl"),
            "{\"rank\":1,\"step\":12,\"epoch\":2,\"elapsed_s\":3.25,\"loss\":2.5,\"learning_rate\":0.0003,"
            "\"peak_bytes\":1099511627776}\n"
            "{\"rank\":0,\"step\":12,\"epoch\":0,\"elapsed_s\":0.0,\"validation_loss\":2.75}\n");
  const MetricsFile file = read_metrics(directory / "metrics.jsonl");
  EXPECT_TRUE(file.problems.empty());
  ASSERT_EQ(file.rows.size(), 2U);
  EXPECT_EQ(to_json_line(file.rows[0]), to_json_line(row));
  EXPECT_EQ(to_json_line(file.rows[1]), to_json_line(validation));
}

TEST(Metrics, AnybodysNumbersComeBackByTheirNames) {
  const TemporaryDirectory directory;
  MetricsRow row;
  row.step = 4;
  row.others = {{"validation_mae", 0.5}, {"validation_odd", std::nan("")}};
  EXPECT_TRUE(row.is_validation());
  MetricsWriter(directory / "m").append(row);
  const MetricsFile file = read_metrics(directory / "m");
  ASSERT_EQ(file.rows.size(), 1U);
  EXPECT_EQ(file.rows[0].others.at("validation_mae"), 0.5);
  EXPECT_TRUE(std::isnan(file.rows[0].others.at("validation_odd")));
  MetricsRow step;
  step.others["gradient_norm"] = 2;
  EXPECT_FALSE(step.is_validation());
  EXPECT_NE(to_json_line(step).find("\"gradient_norm\":2.0"), std::string::npos);
}

TEST(Metrics, NonFiniteLossIsWrittenAsNull) {
  const TemporaryDirectory directory;
  MetricsRow row;
  row.loss = std::nan("");
  EXPECT_NE(to_json_line(row).find("\"loss\":null"), std::string::npos);
  MetricsWriter(directory / "m").append(row);
  const MetricsFile file = read_metrics(directory / "m");
  ASSERT_EQ(file.rows.size(), 1U);
  EXPECT_TRUE(std::isnan(file.rows[0].loss.value()));
}

TEST(Metrics, DamagedLinesAreNamedAndSkipped) {
  const TemporaryDirectory directory;
  write_all(directory / "metrics.jsonl",
            "{\"step\":1,\"loss\":3,\"unknown\":[1]}\n"
            "not json\n"
            "\n"
            "[1,2]\n"
            "{\"rank\":0,\"loss\":2}\n"
            "{\"step\":2,\"loss\":\"low\"}\n"
            "{\"step\":-9223372036854775807,\"loss\":2}\n"
            "{\"step\":3,\"lo");
  const MetricsFile file = read_metrics(directory / "metrics.jsonl");
  ASSERT_EQ(file.rows.size(), 1U);
  EXPECT_EQ(file.rows[0].loss, 3.0);
  ASSERT_EQ(file.problems.size(), 6U);
  EXPECT_TRUE(file.problems[0].starts_with("metrics.jsonl:2: ")) << file.problems[0];
  EXPECT_TRUE(file.problems[5].starts_with("metrics.jsonl:8: ")) << file.problems[5];
  EXPECT_THROW(read_metrics(directory / "missing"), DataError);
}

TEST(Metrics, WriterCompletesLineOfAKilledOne) {
  const TemporaryDirectory directory;
  write_all(directory / "m", "{\"step\":1}\n{\"step\":2,\"lo");
  MetricsRow row;
  row.step = 3;
  MetricsWriter(directory / "m").append(row);
  const MetricsFile file = read_metrics(directory / "m");
  ASSERT_EQ(file.rows.size(), 2U);
  EXPECT_EQ(file.rows[1].step, 3);
}

}  // namespace
}  // namespace rondo::metrics_test
