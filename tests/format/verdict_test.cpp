#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "rondo/format/report/verdict.h"

namespace rondo::verdict_test {
namespace {

using Tone = Finding::Tone;

// A run whose loss falls by 10/step, on ranks that are equally fast.
RunData run_of(std::int64_t steps, int ranks = 2) {
  RunData run;
  for (int rank = 0; rank < ranks; ++rank) run.ranks.push_back(rank);
  for (std::int64_t step = 1; step <= steps; ++step) {
    for (const int rank : run.ranks) {
      MetricsRow row;
      row.rank = rank;
      row.step = step;
      row.elapsed_s = static_cast<double>(step) * 0.5;
      row.loss = 10.0 / static_cast<double>(step);
      row.step_ms = 500;
      row.compute_ms = 490;
      row.comm_ms = 100;
      row.exposed_comm_ms = 10;
      row.tokens_per_s = 20'000;
      run.rows.push_back(row);
    }
  }
  run.starts.emplace_back().total_steps = steps;
  return run;
}

void add_validation(RunData& run, std::int64_t step, double loss) {
  MetricsRow row;
  row.step = step;
  row.validation_loss = loss;
  run.rows.push_back(row);
}

// Returns "tone: text" of each finding.
std::vector<std::string> texts_of(const RunData& run) {
  std::vector<std::string> texts;
  for (const Finding& finding : verdict(run)) texts.push_back(to_string(finding.tone) + ": " + finding.text);
  return texts;
}

bool says(const RunData& run, const std::string& text) {
  for (const std::string& each : texts_of(run))
    if (each == text) return true;
  return false;
}

TEST(Verdict, OfAHealthyRun) {
  RunData run = run_of(100);
  add_validation(run, 50, 1.5);
  add_validation(run, 100, 1.25);
  EXPECT_EQ(texts_of(run), (std::vector<std::string>{
                               "good: Finished: 100 steps in 50 s.",
                               "good: The training loss fell from 10 to 0.1048.",
                               "good: The validation loss is still falling: 1.25 at step 100.",
                               "good: 2 % of the step time waits for communication.",
                               "good: No rank is a straggler.",
                           }));
}

TEST(Verdict, ProgressOfRuns) {
  RunData run = run_of(40);
  run.starts.back().total_steps = 12'000;
  EXPECT_TRUE(says(run, "bad: Ended at step 40 of 12,000 in 20 s."));
  run.is_running = true;
  EXPECT_TRUE(says(run, "neutral: Running: step 40 of 12,000."));
  run.rows.clear();
  EXPECT_EQ(texts_of(run), std::vector<std::string>{"neutral: Running: no step has ended yet."});
  run.is_running = false;
  EXPECT_EQ(texts_of(run), std::vector<std::string>{"bad: No step was recorded."});
  RunData unknown = run_of(1, 1);
  unknown.starts.clear();
  EXPECT_EQ(texts_of(unknown), std::vector<std::string>{"neutral: 1 step in 0.5 s."});
}

TEST(Verdict, LossesThatDoNotFall) {
  RunData run = run_of(30);
  for (MetricsRow& row : run.rows) row.loss = 2 + static_cast<double>(row.step);
  EXPECT_TRUE(
      says(run, "bad: The training loss did not fall: it was 3 in the first step and is 31 at the end."));
  for (MetricsRow& row : run.rows)
    if (row.step >= 20) row.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(says(run,
                   "bad: The training loss is NaN or infinite at step 20. Lower the learning rate, or clip "
                   "gradients (--max-grad-norm)."));
}

TEST(Verdict, ValidationLossThatRises) {
  RunData run = run_of(30);
  add_validation(run, 10, 1.5);
  EXPECT_TRUE(says(run, "neutral: The validation loss is 1.5 at step 10."));
  add_validation(run, 20, 1.25);
  add_validation(run, 30, 1.26);
  EXPECT_TRUE(says(run, "neutral: The validation loss was best at step 20 (1.25) and is 1.26 at step 30."));
  add_validation(run, 40, 1.5);
  EXPECT_TRUE(says(
      run, "bad: The validation loss was best at step 20 (1.25) and is 1.5 at step 40: the model overfits."));
}

TEST(Verdict, SlowRuns) {
  RunData run = run_of(100);
  for (MetricsRow& row : run.rows) {
    if (row.step > 50) row.tokens_per_s = 10'000;
    row.exposed_comm_ms = 150;
    if (row.rank == 1) row.compute_ms = 700;
  }
  EXPECT_TRUE(says(
      run,
      "bad: Throughput fell by 50 %, from 20,000 to 10,000 tokens/s. Look for other work on the hosts."));
  EXPECT_TRUE(says(run, "bad: 30 % of the step time waits for communication."));
  EXPECT_TRUE(says(
      run, "bad: Straggler: rank 1 computes 1.43 times as long as the others (700 against 490 ms a step)."));
}

}  // namespace
}  // namespace rondo::verdict_test
