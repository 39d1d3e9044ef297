#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "apps/bench/pipeline/contestant.h"
#include "apps/bench/step/step_case.h"

namespace rondo::bench {

// What all contestants did.
struct PipelineCase {
  StepCase training;
  Network network;
  int ranks = 2;
  int micro_batches = 1;
  bool emulated = false;  // the accelerators
};

// One object a contestant with the keys that docs/cli.md lists, then ratios with the goals that they have.
nlohmann::ordered_json pipeline_results(const PipelineCase& what,
                                        const std::vector<PipelineContestant>& contestants);

// The same for people.
void print_pipeline_results(const nlohmann::ordered_json& results);

}  // namespace rondo::bench
