#include "rondo/format/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "rondo/base/error.h"
#include "tests/temporary_directory.h"

namespace rondo::trace_test {
namespace {

TEST(Trace, PartsOfAllRanksMergeIntoOneFile) {
  const TemporaryDirectory directory;
  for (const int rank : {1, 0}) {
    TraceWriter writer(directory.path(), rank);
    const std::int64_t start = 1'000'000'000'000'000 + rank * 500;
    writer.add({"backward", Lane::compute, start, start + 2'000'001, 3, {}, {}});
    writer.add({"all_reduce", Lane::communication, start + 1000, start + 1'501'000, 3, 1, 4096});
  }
  EXPECT_EQ(merge_traces(directory.path()), 4U);
  EXPECT_FALSE(std::filesystem::exists(trace_part_path(directory.path(), 0)));

  // The file for viewers: a valid JSON object of complete events, pid = rank, tid = lane.
  const auto json = nlohmann::json::parse(read_all(directory / "trace.json"));
  int complete = 0;
  std::set<std::string> names;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == "process_name") names.insert(event["args"]["name"]);
    if (event["ph"] == "X") ++complete;
  }
  EXPECT_EQ(complete, 4);
  EXPECT_EQ(names, (std::set<std::string>{"rank 0", "rank 1"}));

  const Trace trace = read_trace(directory / "trace.json");
  ASSERT_EQ(trace.events.size(), 4U);
  EXPECT_EQ(trace.events[0].rank, 0);
  EXPECT_EQ(trace.events[0].event.begin_ns, 0);
  EXPECT_EQ(trace.events[0].event.end_ns, 2'000'001);
  EXPECT_EQ(trace.events[1].rank, 1);
  EXPECT_EQ(trace.events[1].event.begin_ns, 500);
  EXPECT_EQ(trace.events[3].event.lane, Lane::communication);
  EXPECT_EQ(trace.events[3].event.bucket, 1);
  EXPECT_EQ(trace.events[3].event.bytes, 4096U);
  EXPECT_EQ(merge_traces(directory.path()), 0U) << "nothing left to merge, and trace.json stays";
  EXPECT_TRUE(std::filesystem::exists(directory / "trace.json"));
}

// Rank 1's clock shows another time and is slower by a thousandth.
TEST(Trace, DrawsOtherHostsOnRank0sClock) {
  const TemporaryDirectory directory;
  constexpr std::int64_t kBegin = 7'000'000'000, kMs = 1'000'000;
  for (const int rank : {0, 1}) {
    TraceWriter writer(directory.path(), rank);
    for (const std::int64_t at : {0, 1000}) {  // milliseconds on rank 0's clock
      const std::int64_t begin = rank == 0 ? at * kMs : kBegin + at * 999'000;
      TraceSpan span{"all_reduce", Lane::communication, begin, begin + kMs, at};
      span.queued_ns = begin - kMs;
      writer.add(span);
    }
  }
  const ClockReadings clocks{{1,
                              {{.own_ns = kBegin, .ahead_ns = -kBegin},
                               {.own_ns = kBegin + 1998 * kMs, .ahead_ns = -kBegin + 2 * kMs}}}};
  EXPECT_EQ(merge_traces(directory.path(), clocks), 4U);
  const Trace trace = read_trace(directory / "trace.json");
  ASSERT_EQ(trace.events.size(), 4U);
  for (const std::size_t step : {0U, 2U}) {
    EXPECT_NEAR(static_cast<double>(trace.events[step].event.begin_ns),
                static_cast<double>(trace.events[step + 1].event.begin_ns), 10'000);
  }
  EXPECT_NEAR(static_cast<double>(trace.events[3].event.begin_ns - trace.events[0].event.begin_ns), 1e9,
              10'000);
}

TEST(Trace, OneReadingOfAClockIsAConstant) {
  EXPECT_EQ(common_time_ns(5, {}), 5);
  EXPECT_EQ(common_time_ns(5, {{.own_ns = 1, .ahead_ns = 100}}), 105);
}

TraceSpan segment(std::int64_t queued, std::int64_t begin, std::int64_t end) {
  TraceSpan event{"all_gather", Lane::communication, begin, end, 3, 2, 4096};
  event.unit = "transformer.h.3";
  event.queued_ns = queued;
  event.exposed_ns = 250'000;
  event.overlapped = {{"forward of transformer.h.2", 400'000}, {"forward", 100'000}};
  return event;
}

TEST(Trace, ASegmentKeepsItsFigures) {
  const TemporaryDirectory directory;
  {
    TraceWriter writer(directory.path(), 0);
    writer.add(segment(1'000'000, 1'500'000, 3'000'000));
  }
  for (const bool merged : {false, true}) {
    if (merged) merge_traces(directory.path());
    const Trace trace = read_trace(merged ? directory / "trace.json" : trace_part_path(directory.path(), 0));
    ASSERT_EQ(trace.events.size(), 1U);
    const TraceSpan& read = trace.events[0].event;
    const TraceSpan written = segment(0, 500'000, 2'000'000);
    EXPECT_EQ(read.name, "all_gather");
    EXPECT_EQ(read.unit, written.unit);
    EXPECT_EQ(read.begin_ns - *read.queued_ns, 500'000);
    EXPECT_EQ(read.exposed_ns, written.exposed_ns);
    EXPECT_EQ(read.overlapped, written.overlapped);
  }
}

// Requirements of the format, so that a viewer draws everything: events of one thread nest or do not overlap,
// and each asynchronous event that begins also ends.
TEST(Trace, ConcurrentOperationsHaveTheirOwnThreads) {
  const TemporaryDirectory directory;
  {
    TraceWriter writer(directory.path(), 0);
    for (int i = 0; i < 10; ++i) writer.add(segment(0, i * 1'000'000, i * 1'000'000 + 2'500'000));
  }
  merge_traces(directory.path());
  const auto json = nlohmann::json::parse(read_all(directory / "trace.json"));
  std::map<int, double> busy_until;
  std::map<std::string, std::string> queue;  // last phase, by number
  std::set<int> named;
  for (const auto& event : json["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "M" && event["name"] == "thread_name") named.insert(event["tid"].get<int>());
    if (phase == "X") {
      const int thread = event["tid"];
      EXPECT_GE(event["ts"].get<double>(), busy_until[thread]);
      busy_until[thread] = event["ts"].get<double>() + event["dur"].get<double>();
      EXPECT_EQ(event["name"], "all_gather transformer.h.3");
      EXPECT_TRUE(named.contains(thread)) << thread;
    }
    if (phase == "b" || phase == "e") {
      std::string& last = queue[event["id"].dump()];
      EXPECT_EQ(last, phase == "b" ? "" : "b");
      last = phase;
    }
  }
  EXPECT_EQ(busy_until.size(), 3U);
  EXPECT_EQ(queue.size(), 9U) << "the first did not wait";
  for (const auto& [number, last] : queue) EXPECT_EQ(last, "e");
}

TEST(Trace, APartOfAKilledRankIsReadable) {
  const TemporaryDirectory directory;
  {
    TraceWriter writer(directory.path(), 0);
    writer.add({"forward \"x\"", Lane::compute, 10, 20, {}, {}, {}});
    writer.add({"backward", Lane::compute, 20, 30, {}, {}, {}});
  }
  const std::filesystem::path part = trace_part_path(directory.path(), 0);
  std::filesystem::resize_file(part, std::filesystem::file_size(part) - 20);
  const Trace trace = read_trace(part);
  ASSERT_EQ(trace.events.size(), 1U);
  EXPECT_EQ(trace.events[0].event.name, "forward \"x\"");
}

TEST(Trace, AnyThreadMayAdd) {
  const TemporaryDirectory directory;
  {
    TraceWriter writer(directory.path(), 0);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&writer] {
        for (int i = 0; i < 2000; ++i) writer.add({"e", Lane::compute, i, i + 1, {}, {}, {}});
      });
    }
  }
  EXPECT_EQ(read_trace(trace_part_path(directory.path(), 0)).events.size(), 8000U);
}

TEST(Trace, ReadsForeignFilesAndRejectsOthers) {
  const TemporaryDirectory directory;
  write_all(
      directory / "foreign.json",
      R"({"traceEvents":[{"ph":"X","ts":1,"dur":2,"pid":3,"tid":0,"name":"a"},{"ph":"B"},{"ph":"X","ts":"1","dur":2}]})");
  EXPECT_EQ(read_trace(directory / "foreign.json").events.size(), 1U);
  write_all(directory / "text", "hello");
  EXPECT_THROW(read_trace(directory / "text"), DataError);
  EXPECT_THROW(read_trace(directory / "missing"), DataError);
}

TEST(Trace, CountersAreKeptWithTheirStepsThroughMerging) {
  const TemporaryDirectory directory;
  for (const int rank : {0, 1}) {
    TraceWriter writer(directory.path(), rank);
    const std::int64_t start = 5'000'000 + rank * 500;
    writer.add({"forward", Lane::compute, start + 1000, start + 2000, 7, {}, {}});
    writer.add(TraceCounter{"memory", start, 7, {{"parameters", 100}, {"activations", 50 + rank}}});
    writer.add(TraceCounter{"memory", start + 3000, {}, {{"parameters", 100}, {"activations", 0}}});
  }
  EXPECT_EQ(merge_traces(directory.path()), 2U);
  const Trace trace = read_trace(directory / "trace.json");
  ASSERT_EQ(trace.counters.size(), 4U);
  EXPECT_EQ(trace.counters[0].counter.time_ns, 0) << "the earliest of events and counters";
  EXPECT_EQ(trace.counters[1].rank, 1);
  EXPECT_EQ(trace.counters[1].counter.time_ns, 500);
  EXPECT_EQ(trace.counters[1].counter.step, 7);
  EXPECT_EQ(trace.counters[1].counter.values,
            (std::vector<std::pair<std::string, std::uint64_t>>{{"parameters", 100}, {"activations", 51}}));
  EXPECT_EQ(trace.counters[2].counter.step, std::nullopt);

  // Viewers expect only values among the arguments.
  const auto json = nlohmann::json::parse(read_all(directory / "trace.json"));
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "C") {
      EXPECT_EQ(event["args"].size(), 2U);
    }
  }
}

TEST(Trace, ForeignCountersAreSkipped) {
  const TemporaryDirectory directory;
  write_all(directory / "trace.json",
            R"({"traceEvents":[{"name":"memory","ph":"C","ts":1,"args":3},{"name":"memory","ph":"C"},
            {"name":"memory","ph":"C","pid":"x","ts":1,"args":{"a":1}},
            {"name":"backward","ph":"X","pid":0,"tid":0,"ts":2,"dur":1,"args":{}}]})");
  const Trace trace = read_trace(directory / "trace.json");
  EXPECT_TRUE(trace.counters.empty());
  EXPECT_EQ(trace.events.size(), 1U);
}

}  // namespace
}  // namespace rondo::trace_test
