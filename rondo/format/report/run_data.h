#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/format/metrics.h"
#include "rondo/format/report/block_figures.h"
#include "rondo/format/report/memory_peaks.h"
#include "rondo/format/run_file.h"
#include "rondo/format/trace.h"

namespace rondo {

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
