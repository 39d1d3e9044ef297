#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rondo/format/provenance.h"

// run.json of a run directory: how a training was started. {starts: [{program, version, time, host, command,
// strategy, backend, ranks, first_step, total_steps}]}, one entry for each time, so a resumed run has
// several.
namespace rondo {

struct RunStart {
  Provenance made;
  std::string strategy;  // that was used, not "auto"
  std::string backend;
  int ranks = 0;
  std::int64_t first_step = 0;   // steps that were done before
  std::int64_t total_steps = 0;  // steps done when it has ended; 0: not known
};

nlohmann::ordered_json to_json(const RunStart& start);

// Throws DataError, naming file and place, for a file that is damaged.
std::vector<RunStart> read_run_starts(const std::filesystem::path& path);

// Writes `start` behind those of `path` that began before it did; what an earlier attempt wrote of the same
// steps is gone.
void add_run_start(const std::filesystem::path& path, const RunStart& start);

}  // namespace rondo
