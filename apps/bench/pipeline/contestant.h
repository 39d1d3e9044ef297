#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/bench/pipeline/bubble.h"
#include "apps/bench/step/fleet.h"

namespace rondo::bench {

// One system of `rondo bench pipeline`, and what its counted steps were.
struct PipelineContestant {
  std::string system = {};    // rondo, pytorch
  std::string schedule = {};  // of a pipeline; empty for ddp
  std::shared_ptr<Fleet> fleet = {};
  std::vector<double> step_ms = {};  // of the slowest rank
  std::vector<Bubble> bubbles = {};  // rondo's pipelines, by step
  double last_loss = 0;
  std::uint64_t peak_rss_bytes = 0;  // of the rank with the most
  std::string matmul = "libtorch";   // kernels of its float32 matrix products

  // "rondo 1f1b", "rondo ddp".
  std::string title() const { return system + " " + (schedule.empty() ? "ddp" : schedule); }
  bool tells_bubbles() const { return !bubbles.empty(); }
};

// All ranks take so many steps and say how they went; with `counts` all but the first one, whose caches are
// cold, are added to what the contestant has measured.
void take_turn(PipelineContestant& contestant, int micro_batches, int steps, bool counts, Deadline deadline);

}  // namespace rondo::bench
