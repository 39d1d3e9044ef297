#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/format/report/curves.h"
#include "rondo/format/report/document.h"
#include "rondo/format/report/run_data.h"
#include "rondo/format/run_directory.h"
#include "tests/temporary_directory.h"

namespace rondo::report_test {
namespace {

std::vector<CurvePoint> noisy_curve(std::size_t count) {
  std::vector<CurvePoint> points;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(i);
    points.push_back({x, x * 2, std::sin(x / 50)});
  }
  return points;
}

TEST(Downsample, KeepsEndsOrderAndPeaks) {
  std::vector<CurvePoint> points = noisy_curve(10000);
  points[6321].value = 40;  // one bad step must stay visible
  const std::vector<CurvePoint> few = downsample(points, 200);
  ASSERT_EQ(few.size(), 200U);
  EXPECT_EQ(few.front().step, 0);
  EXPECT_EQ(few.back().step, 9999);
  EXPECT_TRUE(std::is_sorted(few.begin(), few.end(), [](auto& a, auto& b) { return a.step < b.step; }));
  EXPECT_TRUE(std::any_of(few.begin(), few.end(), [](auto& p) { return p.value == 40; }));
}

TEST(Downsample, LeavesShortCurvesAlone) {
  for (const std::size_t count : {0, 1, 2, 3, 200})
    EXPECT_EQ(downsample(noisy_curve(count), 200).size(), count);
  EXPECT_EQ(downsample(noisy_curve(201), 200).size(), 200U);
}

MetricsRow row_of(int rank, std::int64_t step, double loss) {
  MetricsRow row;
  row.rank = rank;
  row.step = step;
  row.elapsed_s = static_cast<double>(step) * 0.5;
  row.loss = loss;
  row.step_ms = 500;
  row.compute_ms = 480;
  row.comm_ms = 100;
  row.exposed_comm_ms = 20;
  row.tokens_per_s = 1000 + rank;
  row.peak_bytes = static_cast<std::uint64_t>(1000 * (rank + 1));
  return row;
}

void write_run(const std::filesystem::path& directory, int ranks, int steps) {
  MetricsWriter writer(directory / "metrics.jsonl");
  for (int step = 1; step <= steps; ++step) {
    for (int rank = 0; rank < ranks; ++rank) writer.append(row_of(rank, step, 10.0 / step));
  }
}

bool has_note(const RunData& run, const std::string& part) {
  const auto document = report_document(run);
  for (const auto& note : document["notes"]) {
    if (note.get<std::string>().find(part) != std::string::npos) return true;
  }
  return false;
}

TEST(Report, SummarizesARun) {
  const TemporaryDirectory directory;
  write_run(directory.path(), 2, 10);
  MetricsRow validation;
  validation.step = 10;
  validation.validation_loss = 1.25;
  MetricsWriter(directory / "metrics.jsonl").append(validation);
  write_all(directory / "config.json", R"({"model":{"width":4},"strategy":"ddp"})");
  const auto document = report_document(read_run(directory.path()));
  const auto& summary = document["summary"];
  EXPECT_EQ(summary["ranks"], 2);
  EXPECT_EQ(summary["steps"], 10);
  EXPECT_DOUBLE_EQ(summary["final_loss"], 1.0);
  EXPECT_EQ(summary["best_validation_loss"], 1.25);
  EXPECT_EQ(summary["rate"], 1000);
  EXPECT_EQ(summary["rate_unit"], "tokens/s");
  EXPECT_DOUBLE_EQ(summary["exposed_comm_share"], 0.04);
  EXPECT_EQ(summary["peak_bytes"], 2000);
  EXPECT_EQ(document["config"][0], (nlohmann::ordered_json{"model.width", "4"}));
  EXPECT_EQ(document["split"][1]["overlapped_comm_ms"], 80);
  EXPECT_EQ(document["curves"]["peak_bytes"].size(), 2U);
}

TEST(Report, WhatAResumedRunDidAgainCountsOnce) {
  const TemporaryDirectory directory;
  write_run(directory.path(), 1, 10);
  MetricsWriter(directory / "metrics.jsonl").append(row_of(0, 8, 77));
  const auto document = report_document(read_run(directory.path()));
  EXPECT_EQ(document["curves"]["loss"].size(), 10U);
  EXPECT_EQ(document["curves"]["loss"][7][2], 77);
}

TEST(Report, ManyRanksAreDrawnAsTheirSpread) {
  const TemporaryDirectory directory;
  write_run(directory.path(), 20, 3);
  const auto document = report_document(read_run(directory.path()));
  const auto& curves = document["curves"]["peak_bytes"];
  ASSERT_EQ(curves.size(), 3U);
  EXPECT_EQ(curves[0]["role"], "smallest");
  EXPECT_EQ(curves[0]["points"][0][2], 1000);
  EXPECT_EQ(curves[1]["role"], "mean");
  EXPECT_EQ(curves[1]["points"][0][2], 10500);
  EXPECT_EQ(curves[2]["points"][0][2], 20000);
  EXPECT_EQ(document["split"].size(), 20U);
}

TEST(Report, DrawsEveryMetricThatRowsCarry) {
  const TemporaryDirectory directory;
  write_all(directory / "metrics.jsonl",
            R"({"step":1,"elapsed_s":0.5,"loss":2,"loss_scale":1024,"gradient_norm":0.5,"mae":3}
{"step":2,"elapsed_s":1,"loss":1,"loss_scale":512,"gradient_norm":0.25,"mae":null}
{"step":2,"elapsed_s":1,"validation_mae":4,"validation_accuracy":0.5,"validation_perplexity":4.5}
)");
  const auto document = report_document(read_run(directory.path()));
  std::map<std::string, nlohmann::ordered_json> metrics;
  for (const auto& metric : document["metrics"]) metrics[metric["name"]] = metric;
  ASSERT_EQ(metrics.size(), 5U) << document["metrics"];
  EXPECT_EQ(metrics["accuracy"]["validation"], (nlohmann::ordered_json{{2.0, 1.0, 0.5}}));
  EXPECT_TRUE(metrics["accuracy"]["training"].empty());
  EXPECT_EQ(metrics["perplexity"]["validation"][0][2], 4.5);
  EXPECT_EQ(metrics["loss_scale"]["training"][1][2], 512);
  EXPECT_EQ(metrics["gradient_norm"]["training"].size(), 2U);
  EXPECT_EQ(metrics["mae"]["training"].size(), 1U) << "what is not finite is not drawn";
  EXPECT_EQ(metrics["mae"]["validation"][0][2], 4);
}

TEST(Report, TellsHowTheRunWasStarted) {
  const TemporaryDirectory directory;
  write_run(directory.path(), 1, 3);
  EXPECT_TRUE(has_note(read_run(directory.path()), "run.json is missing"));
  const std::vector<std::string> arguments = {"--model", "gpt"};
  add_run_start(directory / "run.json", {.made = make_provenance("rondo train", arguments),
                                         .strategy = "zero2",
                                         .backend = "native",
                                         .ranks = 1,
                                         .first_step = 0});
  const auto document = report_document(read_run(directory.path()));
  ASSERT_EQ(document["starts"].size(), 1U);
  EXPECT_EQ(document["starts"][0]["strategy"], "zero2");
  EXPECT_EQ(document["starts"][0]["command"], "rondo train --model gpt");
  write_all(directory / "run.json", "{");
  EXPECT_TRUE(has_note(read_run(directory.path()), "command of the run cannot be read"));
}

TEST(Report, SaysWhatIsMissing) {
  const TemporaryDirectory directory;
  write_all(directory / "metrics.jsonl", "{\"step\":1,\"loss\":null}\n{\"step\":2,\"lo");
  const RunData run = read_run(directory.path());
  for (const char* part : {"config.json is missing", "damaged line: metrics.jsonl:2", "No validation loss",
                           "No throughput", "No memory", "No trace"}) {
    EXPECT_TRUE(has_note(run, part)) << part;
  }
  EXPECT_TRUE(report_document(run)["summary"]["final_loss"].is_null());

  const TemporaryDirectory only_config;
  write_all(only_config / "config.json", "{");
  EXPECT_TRUE(has_note(read_run(only_config.path()), "metrics.jsonl is missing"));
  EXPECT_TRUE(has_note(read_run(only_config.path()), "config.json cannot be read"));
  write_all(only_config / "trace.json", "no trace");
  EXPECT_TRUE(has_note(read_run(only_config.path()), "The trace cannot be read"));
}

TEST(Report, NamesAndTagsRuns) {
  const TemporaryDirectory directory;
  for (const char* name : {"a", "b", "c"}) {
    std::filesystem::create_directory(directory / name);
    write_run(directory / name, 1, 3);
  }
  EXPECT_EQ(report_document(read_run(directory / "a"))["title"], "a");
  change_run_labels(directory / "a" / "run.json",
                    {.name = "wide", .tags = std::vector<std::string>{"gpt"}, .notes = "text"});
  const auto document = report_document(read_run(directory / "a"));
  EXPECT_EQ(document["title"], "wide");
  EXPECT_EQ(document["labels"].dump(), R"({"name":"wide","tags":["gpt"],"notes":"text"})");

  change_run_labels(directory / "b" / "run.json", {.name = "wide"});
  const std::vector<RunData> runs{read_run(directory / "a"), read_run(directory / "b"),
                                  read_run(directory / "c")};
  const auto compared = comparison_document(runs)["comparison"]["runs"];
  EXPECT_EQ(compared[0]["name"], "wide (a)");
  EXPECT_EQ(compared[1]["name"], "wide (b)");
  EXPECT_EQ(compared[2]["name"], "c");
  EXPECT_EQ(compared[0]["labels"]["tags"][0], "gpt");
}

TEST(Report, IgnoresTheLineThatARunningTrainingWrites) {
  const TemporaryDirectory directory;
  write_all(directory / "metrics.jsonl", "{\"step\":1,\"loss\":3}\n{\"step\":2,\"lo");
  EXPECT_TRUE(has_note(read_run(directory.path()), "damaged line"));
  const RunLock lock(directory.path());
  const RunData run = read_run(directory.path());
  EXPECT_FALSE(has_note(run, "damaged line"));
  EXPECT_EQ(run.rows.size(), 1U);
  write_all(directory / "metrics.jsonl", "{\"step\":1,\"lo\n{\"step\":2,\"loss\":3}\n");
  EXPECT_TRUE(has_note(read_run(directory.path()), "damaged line"));
}

TEST(Report, RejectsWhatIsNoRunDirectory) {
  const TemporaryDirectory directory;
  write_all(directory / "file", "");
  EXPECT_THROW(read_run(directory.path()), UsageError);
  EXPECT_THROW(read_run(directory / "missing"), UsageError);
  EXPECT_THROW(read_run(directory / "file"), UsageError);
}

Trace trace_of(int steps, int events_per_step) {
  Trace trace;
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < events_per_step; ++i) {
      const std::int64_t begin = step * 1'000'000 + i * 1000;
      trace.events.push_back({0, {"e", Lane::compute, begin, begin + 100 + i, step, {}, {}}});
    }
  }
  return trace;
}

TEST(Report, ChoosesStepsAcrossTheRunWithoutTheFirst) {
  const auto timelines = select_timelines(trace_of(101, 3), 5, 600);
  std::vector<std::int64_t> steps;
  for (const StepTimeline& t : timelines) steps.push_back(t.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{11, 31, 51, 71, 91}));
  EXPECT_EQ(timelines[2].events[0].event.begin_ns, 0);
  EXPECT_EQ(timelines[2].events[1].event.begin_ns, 1000);
}

TEST(Report, KeepsLongestEventsOfCrowdedSteps) {
  const auto timelines = select_timelines(trace_of(1, 1000), 5, 10);
  ASSERT_EQ(timelines.size(), 1U);
  EXPECT_EQ(timelines[0].events.size(), 10U);
  EXPECT_EQ(timelines[0].left_out, 990U);
  EXPECT_EQ(timelines[0].events.front().event.end_ns, 100 + 990);
  EXPECT_TRUE(select_timelines({}, 5, 10).empty());
}

TraceSpan block_of(std::string unit, std::int64_t queued, std::int64_t begin, std::int64_t end) {
  TraceSpan event{"reduce_scatter", Lane::communication, begin, end, 2, 0, 1000};
  event.unit = std::move(unit);
  event.queued_ns = queued;
  event.exposed_ns = 7;
  return event;
}

TEST(Report, TellsTheCommunicationOfEachUnit) {
  Trace trace;
  trace.events = {{0, {"backward", Lane::compute, 0, 100, 1, {}, {}}},
                  {0, block_of("h.1", 50, 90, 120)},  // begun in the previous step
                  {0, {"forward", Lane::compute, 110, 200, 2, {}, {}}},
                  {0, block_of("h.1", 90, 110, 150)},
                  {0, block_of("h.0", 100, 150, 250)},
                  {1, block_of("h.0", 100, 140, 160)},
                  {0, block_of("h.0", 300, 310, 320)}};
  trace.events.back().event.step = 3;
  const std::vector<UnitSegments> units = segments_by_unit(trace, 2);
  ASSERT_EQ(units.size(), 3U);
  EXPECT_EQ(units[0].unit, "h.1");
  EXPECT_EQ(units[0].segments, 2U);
  EXPECT_EQ(units[0].bytes, 2000U);
  EXPECT_EQ(units[0].queued_ns, 60) << "50 to 110, two of them at times";
  EXPECT_EQ(units[0].link_ns, 60);
  EXPECT_EQ(units[0].exposed_ns, 14);
  EXPECT_EQ(units[0].overlapped,
            (std::vector<std::pair<std::string, std::int64_t>>{{"forward", 40}, {"backward", 10}}));
  EXPECT_EQ(units[1].unit, "h.0");
  EXPECT_EQ(units[2].rank, 1);
  EXPECT_TRUE(units[2].overlapped.empty()) << "another rank's computation";
  EXPECT_TRUE(segments_by_unit(trace, 9).empty());
}

TEST(Report, DrawsMemoryOfOneStepByUnit) {
  const TemporaryDirectory directory;
  write_run(directory.path(), 1, 3);
  {
    TraceWriter writer(directory.path(), 0);
    for (const std::int64_t step : {1, 2, 3}) {
      const std::int64_t start = step * 1'000'000;
      writer.add({"forward", Lane::compute, start, start + 1000, step, {}, {}});
      writer.add(TraceCounter{"memory", start, step, {{"parameters", 10}, {"activations", 0}}});
      writer.add(TraceCounter{"memory", start + 500'000, step, {{"parameters", 10}, {"activations", 7}}});
    }
  }
  merge_traces(directory.path());
  nlohmann::json units = nlohmann::json::array();
  for (int i = 0; i < 40; ++i) {
    units.push_back({{"name", "h." + std::to_string(i)}, {"categories", {{"activations", 100 + i}}}});
  }
  const nlohmann::json peak = {{"rank", 0},          {"peak_bytes", 17}, {"step", 2},
                               {"phase", "forward"}, {"unit", "h.0"},    {"units", units}};
  write_all(directory / "memory.json", nlohmann::json{{"ranks", {peak}}}.dump());

  const auto memory = report_document(read_run(directory.path()))["memory"];
  EXPECT_EQ(memory["categories"], (nlohmann::ordered_json{"parameters", "activations"}));
  EXPECT_EQ(memory["step"], 2);
  ASSERT_EQ(memory["timelines"].size(), 1U);
  EXPECT_EQ(memory["timelines"][0]["peak"], 17);
  EXPECT_EQ(memory["timelines"][0]["samples"][1], (nlohmann::ordered_json{0.5, 10, 7}));
  const auto& drawn = memory["peaks"][0]["units"];
  ASSERT_EQ(drawn.size(), 31U) << "the largest, and one bar for the rest";
  EXPECT_EQ(drawn[0], (nlohmann::ordered_json{"h.39", 0, 139}));
  EXPECT_EQ(drawn[30][0], "10 more");
}

// A file with very many categories, which rondo never writes, takes time and space linear in its length.
TEST(Report, OfVeryManyCategoriesTheRestIsOne) {
  const TemporaryDirectory directory;
  write_all(directory / "config.json", "{}");
  nlohmann::json units = nlohmann::json::array();
  for (int i = 0; i < 100; ++i)
    units.push_back({{"name", str("unit", i)}, {"categories", {{str("category", i), i == 99 ? 1000 : 1}}}});
  const nlohmann::json peak{{"rank", 0},      {"peak_bytes", 1099}, {"step", 1},
                            {"phase", "end"}, {"unit", "unit99"},   {"units", std::move(units)}};
  write_all(directory / "memory.json", nlohmann::json{{"ranks", {peak}}}.dump());
  const auto memory = report_document(read_run(directory.path()))["memory"];
  ASSERT_EQ(memory["categories"].size(), 31U);
  EXPECT_EQ(memory["categories"][0], "category0");
  EXPECT_EQ(memory["categories"][30], "70 more");
  const auto& drawn = memory["peaks"][0]["units"];
  ASSERT_EQ(drawn.size(), 31U);
  EXPECT_EQ(drawn[0][0], "unit99");
  EXPECT_EQ(drawn[0][31], 1000);
  EXPECT_EQ(drawn[30][31], 69) << "of the units that are drawn as one";
}

TEST(Report, SaysWhatIsMissingOfMemory) {
  const TemporaryDirectory directory;
  write_run(directory.path(), 1, 3);
  EXPECT_TRUE(has_note(read_run(directory.path()), "memory.json is missing"));
  EXPECT_TRUE(has_note(read_run(directory.path()), "No memory timeline was recorded"));
  for (const char* damaged : {"{", R"({"ranks":[{"rank":0}]})", R"({"ranks":[{"rank":"x"}]})"}) {
    write_all(directory / "memory.json", damaged);
    EXPECT_TRUE(has_note(read_run(directory.path()), "peak of memory cannot be read")) << damaged;
  }
}

}  // namespace
}  // namespace rondo::report_test
