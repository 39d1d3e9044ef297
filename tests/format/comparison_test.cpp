#include "rondo/format/report/curves.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/temporary_directory.h"

namespace rondo::comparison_test {
namespace {

RunData run_in(const std::filesystem::path& directory, double loss, const std::string& config) {
  std::filesystem::create_directories(directory);
  MetricsWriter writer(directory / "metrics.jsonl");
  for (std::int64_t step = 1; step <= 3; ++step) {
    MetricsRow row;
    row.step = step;
    row.elapsed_s = static_cast<double>(step);
    row.loss = loss / static_cast<double>(step);
    row.samples_per_s = 100 * loss;
    writer.append(row);
  }
  std::ofstream(directory / "config.json") << config;
  return read_run(directory);
}

TEST(Comparison, HasCurvesAndDifferencesOfEachRun) {
  const TemporaryDirectory directory;
  const std::vector<RunData> runs{
      run_in(directory / "a", 3, R"({"lr": 0.1, "seed": 1, "model": {"width": 4}})"),
      run_in(directory / "b", 6, R"({"lr": 0.2, "seed": 1, "model": {"width": 4}, "momentum": 0.9})")};
  const auto document = comparison_document(runs);
  EXPECT_EQ(document["title"], "a, b");
  const auto& shown = document["comparison"]["runs"];
  ASSERT_EQ(shown.size(), 2U);
  EXPECT_EQ(shown[1]["curves"]["loss"].size(), 3U);
  EXPECT_EQ(shown[1]["summary"]["final_loss"], 2.0);
  EXPECT_EQ(shown[0]["summary"]["rate"], 300.0);
  EXPECT_EQ(document["comparison"]["differences"].dump(), R"([["lr","0.1","0.2"],["momentum",null,"0.9"]])");
}

TEST(Comparison, ScalingIsThroughputPerRankRelativeToFewest) {
  const TemporaryDirectory directory;
  const RunData one = run_in(directory / "one", 3, "{}");  // 300 samples per second
  RunData two = run_in(directory / "two", 5, "{}");        // 500 samples per second
  two.ranks = {0, 1};
  const auto document = comparison_document(std::vector{two, one});
  const auto& runs = document["comparison"]["runs"];
  EXPECT_NEAR(runs[0]["summary"]["scaling_efficiency"].get<double>(), 500.0 / 600, 1e-12);
  EXPECT_EQ(runs[1]["summary"]["scaling_efficiency"], 1.0);
  EXPECT_FALSE(comparison_document(std::vector{one, one})["comparison"]["runs"][0]["summary"].contains(
      "scaling_efficiency"));
}

TEST(Comparison, NamesRunsByDifferingPathParts) {
  const TemporaryDirectory directory;
  const std::vector<RunData> runs{run_in(directory / "one/run", 3, "{}"),
                                  run_in(directory / "two/run", 3, "{}")};
  EXPECT_EQ(comparison_document(runs)["title"], "one/run, two/run");
  const std::vector<RunData> same{runs[0], runs[0]};  // the paths are equal
  EXPECT_EQ(comparison_document(same)["comparison"]["runs"].size(), 2U);
}

}  // namespace
}  // namespace rondo::comparison_test
