#include "rondo/format/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "rondo/base/error.h"
#include "rondo/format/report/document.h"
#include "tests/temporary_directory.h"

namespace rondo::thinned_metrics_test {
namespace {

constexpr std::int64_t kSpike = 7777;
constexpr std::int64_t kStall = 12345;
constexpr std::int64_t kNotFinite = 333;

MetricsRow row_of(std::int64_t step, int rank) {
  MetricsRow row;
  row.rank = rank;
  row.step = step;
  row.epoch = step / 1000;
  row.elapsed_s = 0.01 * static_cast<double>(step);
  row.loss = 2.0 + 1.0 / static_cast<double>(step);
  if (step == kSpike) row.loss = 99;
  if (step == kNotFinite) row.loss = std::nan("");
  row.learning_rate = 1e-3;
  row.samples_per_s = 1234.5678901234;
  row.step_ms = static_cast<double>(step % 7) + 1;
  if (step == kStall && rank == 1) row.step_ms = 5000;
  row.compute_ms = 0.25 + static_cast<double>(rank);
  row.comm_ms = 0.5;
  row.exposed_comm_ms = 0.125;
  row.peak_bytes = 1'000'000 + static_cast<std::uint64_t>(step);
  row.peak_rss_bytes = row.peak_pss_bytes = 123'456'789'012;
  row.others["gradient_norm"] = step == kSpike ? 77.0 : 1.0;
  return row;
}

void append_steps(ThinnedMetricsWriter& writer, std::int64_t first, std::int64_t last, int ranks) {
  for (std::int64_t step = first; step <= last; ++step) {
    std::vector<MetricsRow> rows;
    for (int rank = 0; rank < ranks; ++rank) rows.push_back(row_of(step, rank));
    writer.append_step(rows);
  }
}

// Appends several steps in one call, as rows arrive from other ranks.
void append_at_once(ThinnedMetricsWriter& writer, std::int64_t first, std::int64_t last, int ranks) {
  std::vector<std::vector<MetricsRow>> steps;
  for (std::int64_t step = first; step <= last; ++step) {
    std::vector<MetricsRow>& rows = steps.emplace_back();
    for (int rank = 0; rank < ranks; ++rank) rows.push_back(row_of(step, rank));
  }
  writer.append_steps(steps);
}

MetricsRow validation_of(std::int64_t step) {
  MetricsRow row;
  row.step = step;
  row.validation_loss = 3;
  return row;
}

TEST(ThinnedMetrics, OfSeveralStepsEqualThoseOfEach) {
  const TemporaryDirectory directory;
  const auto one_by_one = directory / "one.jsonl", at_once = directory / "all.jsonl";
  // 48 rows of two ranks: thinned twice if at most 32 rows are allowed.
  for (const std::size_t most : {std::size_t{1000}, std::size_t{32}}) {
    {
      ThinnedMetricsWriter first(one_by_one, 0, false, most);
      ThinnedMetricsWriter second(at_once, 0, false, most);
      for (std::int64_t step = 1; step <= 48; step += 8) {
        append_steps(first, step, step + 7, 2);
        append_at_once(second, step, step + 7, 2);
      }
      first.flush();
      second.flush();
    }
    EXPECT_EQ(read_all(at_once), read_all(one_by_one)) << most;
    std::filesystem::remove(one_by_one);
    std::filesystem::remove(at_once);
  }
}

TEST(ThinnedMetrics, OfShortRunsKeepEveryRow) {
  const TemporaryDirectory directory;
  ThinnedMetricsWriter writer(directory / "metrics.jsonl", 0);
  append_steps(writer, 1, 20, 2);
  std::string expected;
  for (std::int64_t step = 1; step <= 20; ++step) {
    for (int rank = 0; rank < 2; ++rank) expected += to_json_line(row_of(step, rank)) + "\n";
  }
  EXPECT_EQ(read_all(directory / "metrics.jsonl"), expected);
}

TEST(ThinnedMetrics, OfLongRunsKeepWhatTheReportDraws) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory / "metrics.jsonl";
  constexpr std::size_t kMost = 1024;
  constexpr std::int64_t kSteps = 20'000;
  ThinnedMetricsWriter writer(file, 0, false, kMost);
  for (std::int64_t step = 1; step <= kSteps; step += 500) {
    append_steps(writer, step, step + 499, 2);
    writer.append_validation(validation_of(step + 499));
    EXPECT_LE(read_metrics(file).rows.size(), kMost + 2 + static_cast<std::size_t>(step / 500 + 1));
  }
  writer.flush();

  std::int64_t steps = 0;
  double step_ms = 0;
  for (const MetricsRow& row : read_metrics(file).rows) {
    if (row.rank != 0 || row.is_validation()) continue;
    steps += row.steps.value_or(1);
    step_ms += static_cast<double>(row.steps.value_or(1)) * *row.step_ms;
  }
  EXPECT_EQ(steps, kSteps);
  double expected_ms = 0;
  for (std::int64_t step = 1; step <= kSteps; ++step) expected_ms += *row_of(step, 0).step_ms;
  EXPECT_NEAR(step_ms, expected_ms, 1e-6 * expected_ms);

  const auto document = report_document(read_run(directory.path()));
  const auto largest = [](const nlohmann::ordered_json& points) {
    double value = 0;
    for (const auto& point : points) value = std::max(value, point[2].get<double>());
    return value;
  };
  EXPECT_EQ(largest(document["curves"]["loss"]), 99);
  EXPECT_EQ(largest(document["curves"]["step_ms"][1]["points"]), 5000);
  EXPECT_EQ(document["curves"]["validation_loss"].size(), 40U);
  EXPECT_EQ(document["summary"]["final_loss"], *row_of(kSteps, 0).loss);
  EXPECT_EQ(document["summary"]["peak_bytes"], 1'000'000 + kSteps);
  ASSERT_EQ(document["split"].size(), 2U);
  EXPECT_NEAR(document["split"][1]["compute_ms"].get<double>(), 1.25, 1e-9);
  bool not_finite = false;
  for (const auto& finding : document["verdict"])
    not_finite =
        not_finite || finding["text"].get<std::string>().find("NaN or infinite") != std::string::npos;
  EXPECT_TRUE(not_finite);
  for (const auto& metric : document["metrics"]) {
    if (metric["name"] == "gradient_norm") {
      EXPECT_EQ(largest(metric["training"]), 77);
    }
  }
}

// With 64 ranks, the file reaches its maximum size after a thousand steps.
TEST(ThinnedMetrics, OfManyRanksStayBelowTwoHundredMegabytes) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory / "metrics.jsonl";
  ThinnedMetricsWriter writer(file, 0);
  append_steps(writer, 1, 1'100, 64);
  writer.flush();
  EXPECT_LT(std::filesystem::file_size(file), 200'000'000U);
  std::size_t longest = 0;
  for (const MetricsRow& row : read_metrics(file).rows) {
    MetricsRow late = row;
    late.step = 1'000'000'000'000;
    late.steps = 1'000'000'000;
    longest = std::max(longest, to_json_line(late).size() + 1);
  }
  EXPECT_LT((ThinnedMetricsWriter::kMostRows + 64) * longest, 100'000'000U);
}

TEST(ThinnedMetrics, OfResumedRunsContinueAtTheirStep) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory / "metrics.jsonl";
  {
    ThinnedMetricsWriter writer(file, 0, false, 64);
    append_steps(writer, 1, 96, 2);
    writer.append_validation(validation_of(96));
    append_steps(writer, 97, 100, 2);
    writer.flush();
  }
  const auto last_step = [&] {
    std::int64_t last = 0;
    for (const MetricsRow& row : read_metrics(file).rows) last = std::max(last, row.step);
    return last;
  };
  const auto steps = [&] {
    std::int64_t steps = 0;
    for (const MetricsRow& row : read_metrics(file).rows) {
      if (row.rank == 1) steps += row.steps.value_or(1);
    }
    return steps;
  };
  EXPECT_EQ(steps(), 100);
  ThinnedMetricsWriter resumed(file, 96, /*its_validation=*/true, 64);
  EXPECT_EQ(last_step(), 96);
  for (const MetricsRow& row : read_metrics(file).rows) EXPECT_FALSE(row.is_validation());
  append_steps(resumed, 97, 120, 2);
  resumed.flush();
  EXPECT_EQ(steps(), 120);
  EXPECT_LE(read_metrics(file).rows.size(), 66U);
}

// Limits the size of files to `bytes` for the lifetime of the object, like a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(ThinnedMetrics, WritesRowsRefusedByAFullDiskLater) {
  for (const std::size_t most_rows : {std::size_t{1000}, std::size_t{40}}) {
    const TemporaryDirectory directory;
    ThinnedMetricsWriter whole(directory / "whole.jsonl", 0, false, most_rows);
    ThinnedMetricsWriter refused(directory / "refused.jsonl", 0, false, most_rows);
    append_steps(whole, 1, 10, 2);
    append_steps(refused, 1, 10, 2);
    const auto written = std::filesystem::file_size(directory / "refused.jsonl");
    {
      const FileSizeLimit limit(written + 100);  // inside a row
      EXPECT_THROW(append_at_once(refused, 11, 25, 2), Error);
      EXPECT_THROW(refused.append_validation(validation_of(25)), Error);
      EXPECT_THROW(append_steps(refused, 26, 26, 2), Error);
      EXPECT_EQ(std::filesystem::file_size(directory / "refused.jsonl"), written) << "no part of a row";
    }
    append_at_once(whole, 11, 25, 2);
    whole.append_validation(validation_of(25));
    append_steps(whole, 26, 26, 2);
    append_steps(whole, 27, 40, 2);
    append_steps(refused, 27, 40, 2);
    whole.flush();
    refused.flush();
    if (most_rows == 1000) {
      EXPECT_EQ(read_all(directory / "refused.jsonl"), read_all(directory / "whole.jsonl"));
    } else {
      const MetricsFile file = read_metrics(directory / "refused.jsonl");
      EXPECT_TRUE(file.problems.empty());
      EXPECT_EQ(file.rows.back().step, 40);
      EXPECT_LE(file.rows.size(), most_rows + 1);
    }
  }
}

TEST(ThinnedMetrics, AFileThatIsRemovedIsBegunAnew) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "run");
  ThinnedMetricsWriter writer(directory / "run/metrics.jsonl", 0);
  append_steps(writer, 1, 3, 1);
  std::filesystem::remove_all(directory / "run");
  EXPECT_THROW(append_steps(writer, 4, 4, 1), Error);
  std::filesystem::create_directories(directory / "run");
  append_steps(writer, 5, 5, 1);
  const MetricsFile file = read_metrics(directory / "run/metrics.jsonl");
  ASSERT_EQ(file.rows.size(), 2U);
  EXPECT_EQ(file.rows[0].step, 4);
  EXPECT_EQ(file.rows[1].step, 5);
}

}  // namespace
}  // namespace rondo::thinned_metrics_test
