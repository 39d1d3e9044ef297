#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "rondo/base/bytes.h"

namespace rondo::bench {

// Which plan to show.
struct PlanChoice {
  std::string algorithm;
  std::string operation = "all_reduce";
  int ranks = 4;
  int root = 0;
  int hosts = 1;  // of hierarchical; ranks are spread over them evenly, in order
  int rows = 0;   // of torus_2d; 0: as square as can be
  Bytes bytes;
  std::string dtype = "float32";
  std::size_t element_bytes = 4;
  bool in_rank_order = false;
};

// Where each rank is when `ranks` are spread over `hosts` in order, the first hosts having one more.
std::vector<int> spread_over_hosts(int ranks, int hosts);

// The steps of all ranks as a table for people, and under the keys of docs/cli.md. Throw UsageError for a
// plan that cannot be.
std::string explain_as_text(const PlanChoice& choice);
nlohmann::ordered_json explain_as_json(const PlanChoice& choice);

}  // namespace rondo::bench
