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

// The communication of one unit in one step on one rank. Times are in nanoseconds, and those of blocks under
// way side by side count once.
struct UnitBlocks {
  int rank = 0;
  std::string unit = {};  // or "bucket 3", of gradients that belong to no single unit
  std::size_t blocks = 0;
  std::uint64_t bytes = 0;
  std::int64_t queued_ns = 0;   // at least one block waited in the queue
  std::int64_t link_ns = 0;     // at least one was under way
  std::int64_t exposed_ns = 0;  // computation stood still
  // What was computed while at least one was under way, longest first.
  std::vector<std::pair<std::string, std::int64_t>> overlapped = {};
};

// By rank, then in the order in which the units began.
std::vector<UnitBlocks> blocks_by_unit(const Trace& trace, std::int64_t step);

// One rank's entry of memory.json: its peak, when it was and what it consisted of.
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

// Reads RUN/memory.json, by rank. Throws DataError for a file that is damaged.
std::vector<MemoryPeakRecord> read_memory_peaks(const std::filesystem::path& path);

// The events of one training step. Time zero is the first that was computed; an operation may have begun in
// the step before.
struct StepTimeline {
  std::int64_t step = 0;
  std::vector<Trace::Event> events;     // by begin time
  std::size_t left_out = 0;             // shortest events that were too many to draw
  std::vector<UnitBlocks> blocks = {};  // of all events
};

// A run directory as far as it is there.
struct RunData {
  std::filesystem::path directory;
  std::vector<MetricsRow> rows;                // by step; what a resumed run did again counts once
  std::vector<int> ranks;                      // that have rows, ascending
  std::vector<RunStart> starts;                // from run.json; empty without
  nlohmann::ordered_json config;               // null without config.json
  std::vector<StepTimeline> timelines;         // of a few steps, ascending
  std::vector<Trace::Counter> memory_samples;  // of one step, by time
  std::vector<MemoryPeakRecord> memory_peaks;  // by rank
  nlohmann::ordered_json prediction;           // prediction.json of a planned run; null without
  std::vector<std::string> notes;              // what is missing or damaged, in plain words
};

// Throws UsageError when `directory` is not a run directory: it does not exist, or holds none of
// metrics.jsonl, config.json and trace.json.
RunData read_run(const std::filesystem::path& directory);

// The steps worth drawing of a trace: up to `steps` of them, spread over the run without its first step, each
// with its `events` longest events.
std::vector<StepTimeline> select_timelines(const Trace& trace, std::size_t steps, std::size_t events);

}  // namespace rondo
