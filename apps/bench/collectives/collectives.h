#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/bench/collectives/contender.h"
#include "apps/bench/harness/benchmark.h"
#include "rondo/backend/group.h"
#include "rondo/channel/thread_channel.h"

// The parts of `rondo bench collectives`: settings, measurement, rows, printed schedules.
namespace rondo::bench {

// The length of a measurement.
struct Effort {
  int bursts = 7;                                  // number of bursts of each contender
  Duration burst = std::chrono::milliseconds(10);  // target length of a burst
  Duration gap_watch =
      std::chrono::milliseconds(10);  // duration of the check for disturbances before each case
  int least_samples = 3;              // per burst
};

struct CollectivesSettings {
  std::vector<std::string> operations;
  std::vector<int> ranks;
  std::vector<Bytes> sizes;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::string> codecs;  // without "none"
  bool fresh = false;
  bool peers = false;
  std::vector<MpiPeer> mpi_peers;  // in addition to the systems of `peers`
  bool table = true;
  Effort effort;
  // Schedules to run beside the engine, each over each channel.
  std::vector<std::string> algorithms;
  std::vector<std::string> channels;
  int hosts = 1;  // number of hosts that schedules are made for
  bool deterministic = false;

  bool uses(const std::string& channel) const {
    return std::find(channels.begin(), channels.end(), channel) != channels.end();
  }
};

// Starts the ranks, as processes or as threads depending on the channels, for each number of ranks in turn.
// Rank 0 prints the table, if any. Returns the rows of the JSON.
Json measure_collectives(const CollectivesSettings& settings);

// Measures all_reduce of float32 over a link of `rate` between two emulated hosts: rondo's hierarchical
// engine with `options` and each codec, and Gloo, with ranks numbered host by host and alternating between
// hosts. Returns rows as measure_collectives() does, with `hosts` 2 and also `rate` and `rank_order`. Throws
// Error if the machine does not support emulated hosts.
Json measure_across_hosts(const CollectivesSettings& settings, const std::string& rate,
                          const std::string& options);

// Creates this rank's part of each contender. Collective over `world`. `mesh` is null if ranks are processes.
std::vector<std::unique_ptr<Contender>> make_contenders(const CollectivesSettings& settings,
                                                        const Group& world, const ThreadMesh* mesh);

// The time that other processes took from this one during a check for disturbances.
struct Gaps {
  double longest_us = 0;  // longest time between two readings of the clock
  double lost = 0;        // share of the time in gaps longer than 20 us
};

// The result of one contender.
struct Row {
  Case what;
  Labels labels;
  int ranks = 0;
  Timing timing;
  bool correct = false;
  Gaps gaps;
};

// Measures every operation and size. Collective over `world`; rank 0 returns the rows, and prints the table,
// if any.
Json measure_cases(const CollectivesSettings& settings,
                   const std::vector<std::unique_ptr<Contender>>& contenders, const Group& world);

// Returns the keys of docs/cli/bench.md, and for rondo's rows their speedup over each peer.
Json to_json(const Row& row, const std::vector<Row>& same_case);

// Returns lines of text: a heading for one operation and number of ranks, one line per size with a column per
// contender, and the reference of the ratios (empty without a peer).
std::string table_heading(const std::vector<Row>& same_case);
std::string table_line(const std::vector<Row>& same_case);
std::string table_footing(const std::vector<Row>& same_case);

// A schedule to print.
struct ScheduleChoice {
  std::string algorithm;
  std::string operation = "all_reduce";
  int ranks = 4;
  int root = 0;
  int hosts = 1;  // number of hosts for hierarchical; ranks are spread over them evenly, in order
  int rows = 0;   // for torus_2d; 0: as square as possible
  Bytes bytes;
  std::string dtype = "float32";
  std::size_t element_bytes = 4;
  bool in_rank_order = false;
};

// Returns the host of each rank when `ranks` are spread over `hosts` in order; the first hosts have one more.
std::vector<int> spread_over_hosts(int ranks, int hosts);

// Return the steps of all ranks as a text table, and under the keys of docs/cli/bench.md. Throw UsageError
// for an impossible schedule.
std::string explain_as_text(const ScheduleChoice& choice);
Json explain_as_json(const ScheduleChoice& choice);

}  // namespace rondo::bench
