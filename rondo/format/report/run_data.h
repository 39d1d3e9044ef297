#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "rondo/format/metrics.h"
#include "rondo/format/run_directory.h"
#include "rondo/format/trace.h"

namespace rondo {

// Communication of one unit in one step on one rank. Times are in nanoseconds; concurrent segments count
// once.
struct UnitSegments {
  int rank = 0;
  std::string unit = {};  // or "bucket 3" for gradients of several units
  std::size_t segments = 0;
  std::uint64_t bytes = 0;
  std::int64_t queued_ns = 0;   // time with at least one segment in the queue
  std::int64_t link_ns = 0;     // time with at least one segment in transfer
  std::int64_t exposed_ns = 0;  // time that computation waited
  // Computation while at least one segment was in transfer, longest first.
  std::vector<std::pair<std::string, std::int64_t>> overlapped = {};
};

// Returns the segments sorted by rank, then by the begin of each unit.
std::vector<UnitSegments> segments_by_unit(const Trace& trace, std::int64_t step);

// One rank's entry of memory.json: its memory peak, the time of the peak and its composition.
struct MemoryPeakRecord {
  struct Unit {
    std::string name;
    std::vector<std::pair<std::string, std::uint64_t>> categories;
  };
  int rank = 0;
  std::uint64_t bytes = 0;
  std::int64_t step = 0;
  std::string phase = {};
  std::string unit = {};
  std::vector<Unit> units = {};
};

// Reads RUN/memory.json, sorted by rank. Throws DataError for a damaged file.
std::vector<MemoryPeakRecord> read_memory_peaks(const std::filesystem::path& path);

// The events of one training step. Time zero is the first compute event; an operation may have begun in the
// previous step.
struct StepTimeline {
  std::int64_t step = 0;
  std::vector<Trace::Event> events;         // by begin time
  std::size_t left_out = 0;                 // number of shortest events that were dropped
  std::vector<UnitSegments> segments = {};  // computed from all events
};

// The content of a run directory as far as it exists.
struct RunData {
  std::filesystem::path directory;
  std::vector<MetricsRow> rows;                // by step; repeated steps of a resumed run count once
  std::vector<int> ranks;                      // ranks with rows, ascending
  std::vector<RunStart> starts;                // from run.json; empty if missing
  RunLabels labels;                            // from run.json
  nlohmann::ordered_json config;               // from config.json; null if missing
  nlohmann::ordered_json data;                 // from data.json; null if missing
  bool is_running = false;                     // whether a training holds the directory's lock
  std::vector<StepTimeline> timelines;         // a few steps, ascending
  std::size_t median_timeline = 0;             // index of the timeline with the median duration
  std::vector<Trace::Counter> memory_samples;  // samples of the median timeline's step, by time
  std::vector<MemoryPeakRecord> memory_peaks;  // by rank
  nlohmann::ordered_json prediction;           // prediction.json of a planned run; null if missing
  std::vector<std::string> notes;              // missing or damaged parts, as sentences
};

// Throws UsageError if `directory` does not exist or contains none of metrics.jsonl, config.json and
// trace.json.
void check_run_directory(const std::filesystem::path& directory);

// Reads a run directory, also of a training in progress. Throws as check_run_directory().
RunData read_run(const std::filesystem::path& directory);

// Selects steps of a trace for drawing: up to `steps` of them, spread over the run without its first step,
// each with its `events` longest events.
std::vector<StepTimeline> select_timelines(const Trace& trace, std::size_t steps, std::size_t events);

}  // namespace rondo
