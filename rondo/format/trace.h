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

// Timelines in Chrome's trace-event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open: a
// process is a rank, a thread is a lane. Operations under way at the same time lie in lanes of their own,
// since the events of a thread must nest; the time that a block waits in a queue is an asynchronous event.

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
  void add(const TraceSpan& event);
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
    TraceSpan event;
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

// What a rank's clock showed when rank 0's was ahead of it by `ahead_ns`.
struct ClockReading {
  std::int64_t own_ns = 0;
  std::int64_t ahead_ns = 0;
};

// By rank, in order of time; ranks without readings have rank 0's clock.
using ClockReadings = std::map<int, std::vector<ClockReading>>;

// A rank's time on rank 0's clock: between and beyond two readings as far ahead as the straight line through
// the first and the last says, since clocks of hosts drift apart.
std::int64_t common_time_ns(std::int64_t own_ns, const std::vector<ClockReading>& readings);

// Joins the parts of all ranks in `run_directory` into trace.json, on rank 0's clock, with the earliest event
// at time zero, and removes them. Returns the number of events, counters not counted; without parts nothing
// is written.
std::size_t merge_traces(const std::filesystem::path& run_directory, const ClockReadings& clocks = {});

// Operations of a rank that are under way at the same time cannot be drawn on top of each other: for each of
// `events` (by begin time) a place, 0 and up, so that communication of one rank in one place never overlaps.
// Events of the compute lane lie in each other and all have place 0.
std::vector<int> places_in_lanes(std::span<const Trace::Event> events);

}  // namespace rondo
