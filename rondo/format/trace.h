#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rondo/format/file.h"

// Timelines in Chrome's trace-event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open: a
// process is a rank, a thread is a lane. Operations under way at the same time lie in lanes of their own,
// since the events of a thread must nest; the time that a block waits in a queue is an asynchronous event.
namespace rondo {

enum class Lane { compute = 0, communication = 1 };
std::string_view to_string(Lane lane);

// Something that took time. Times are monotonic_ns() (base/time.h), so that ranks of one host line up.
struct TraceEvent {
  std::string name;  // "forward", "backward", "optimizer", "all_reduce"
  Lane lane = Lane::compute;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> bucket;  // index of the gradient bucket, or of the block within its unit
  std::optional<std::uint64_t> bytes;  // payload
  std::string unit = {};               // of the model; empty: it is not one unit's

  // Of a block of communication, where that is known.
  std::optional<std::int64_t> queued_ns = {};   // it was ready to go
  std::optional<std::int64_t> exposed_ns = {};  // for so long computation stood still for it
  // What was computed while it was under way, and for how long, longest first.
  std::vector<std::pair<std::string, std::int64_t>> overlapped = {};
};

// What was in use at a moment: one curve for each of the values, stacked, above the rank's lanes.
struct TraceCounter {
  std::string name;  // "memory"
  std::int64_t time_ns = 0;
  std::optional<std::int64_t> step;
  std::vector<std::pair<std::string, std::uint64_t>> values;
};

// RUN/trace.rank3.json, one rank's part until merge_traces() joins them.
std::filesystem::path trace_part_path(const std::filesystem::path& run_directory, int rank);

// Writes one rank's part. A part is readable at any moment, also after a kill. Any thread may add events.
class TraceWriter {
 public:
  TraceWriter(const std::filesystem::path& run_directory, int rank);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Cheap, some microseconds: keeps the event in memory; every few thousand events are written out.
  void add(const TraceEvent& event);
  void add(const TraceCounter& counter);
  void flush();

 private:
  void write_pending();  // with mutex_ held

  const int rank_;
  std::mutex mutex_;                  // protects the fields below
  std::vector<std::string> pending_;  // lines
  OutputFile file_;
};

struct Trace {
  struct Event {
    int rank = 0;
    TraceEvent event;
  };
  struct Counter {
    int rank = 0;
    TraceCounter counter;
  };
  std::vector<Event> events;      // by begin time
  std::vector<Counter> counters;  // by time
};

// Reads a part or a merged trace; damaged or foreign events are skipped. Throws DataError when the file
// cannot be read or is no trace.
Trace read_trace(const std::filesystem::path& path);

// Joins the parts of all ranks in `run_directory` into trace.json, with the earliest event at time zero, and
// removes them. Returns the number of events, counters not counted; without parts nothing is written.
std::size_t merge_traces(const std::filesystem::path& run_directory);

}  // namespace rondo
