#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/bench/collectives/contender.h"
#include "apps/bench/collectives/gaps.h"

namespace rondo::bench {

// What came out for one contender.
struct Row {
  Case what;
  Labels labels;
  int ranks = 0;
  Timing timing;
  bool correct = false;
  Gaps gaps;
};

// GB/s of useful bytes, and of bytes on each link (see bus_factor).
double algorithm_bandwidth(const Row& row);
double bus_bandwidth(const Row& row);

// The keys of docs/cli.md, and for rondo's rows how many times faster they are than each peer.
nlohmann::ordered_json to_json(const Row& row, const std::vector<Row>& same_case);

// Lines for people: a heading for one operation and number of ranks, and one line a size with a column a
// contender.
std::string table_heading(const std::vector<Row>& same_case);
std::string table_line(const std::vector<Row>& same_case);
// What the ratios of the lines are of, as a line with its end; empty without a peer.
std::string table_footing(const std::vector<Row>& same_case);

}  // namespace rondo::bench
