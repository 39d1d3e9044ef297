#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rondo/format/file.h"
#include "rondo/format/trace_span.h"

namespace rondo {

// Timelines in Chrome's trace-event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open. A
// process is a rank, a thread is a lane. Concurrent operations have separate lanes, because the events of a
// thread must nest. The time of a block in a queue is an asynchronous event.

// Returns RUN/trace.rank3.json, the path of one rank's part before merge_traces().
std::filesystem::path trace_part_path(const std::filesystem::path& run_directory, int rank);

// A writer of one rank's part. A part is readable at any time, even after a kill. Thread-safe.
class TraceWriter {
 public:
  TraceWriter(const std::filesystem::path& run_directory, int rank);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Adds an event, in some microseconds. Keeps events in memory and writes them out every few thousand
  // events.
  void add(const TraceSpan& event);
  void add(const TraceCounter& counter);
  void flush();

 private:
  void write_pending();  // requires mutex_

  const int rank_;
  std::mutex mutex_;                  // protects the fields below
  std::vector<std::string> pending_;  // lines
  OutputFile file_;
};

struct Trace {
  struct Event {
    int rank = 0;
    TraceSpan event;
  };
  struct Counter {
    int rank = 0;
    TraceCounter counter;
  };
  std::vector<Event> events;      // by begin time
  std::vector<Counter> counters;  // by time
};

// Reads a part or a merged trace and skips damaged or foreign events. Throws DataError if the file cannot be
// read or is not a trace.
Trace read_trace(const std::filesystem::path& path);

// A clock comparison: when a rank's clock showed `own_ns`, rank 0's clock was ahead by `ahead_ns`.
struct ClockReading {
  std::int64_t own_ns = 0;
  std::int64_t ahead_ns = 0;
};

// By rank, in time order; ranks without readings use rank 0's clock.
using ClockReadings = std::map<int, std::vector<ClockReading>>;

// Converts a rank's time to rank 0's clock. Interpolates and extrapolates linearly between the first and the
// last reading, because clocks of hosts drift.
std::int64_t common_time_ns(std::int64_t own_ns, const std::vector<ClockReading>& readings);

// Joins the parts of all ranks in `run_directory` into trace.json, on rank 0's clock with the earliest event
// at time zero, and removes the parts. Returns the number of events without counters. Writes nothing if there
// are no parts.
std::size_t merge_traces(const std::filesystem::path& run_directory, const ClockReadings& clocks = {});

// Assigns lanes to concurrent operations, which cannot be drawn on top of each other. Returns a place (from
// 0) for each of `events` (sorted by begin time), so that communication of one rank in one place never
// overlaps. Events of the compute lane nest and all have place 0.
std::vector<int> places_in_lanes(std::span<const Trace::Event> events);

}  // namespace rondo
