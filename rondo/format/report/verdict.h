#pragma once

#include <string>
#include <vector>

#include "rondo/format/report/run_data.h"

namespace rondo {

// A sentence about a run.
struct Finding {
  enum class Tone { good, bad, neutral };

  std::string text;
  Tone tone = Tone::neutral;  // bad: the user should investigate it
};

std::string to_string(Finding::Tone tone);  // "good", "bad" or "neutral"

// Returns the verdict on a run, most important first: progress, training and validation loss, a drop of the
// throughput, the share of communication, and stragglers. Omits what was not measured. Never empty.
std::vector<Finding> verdict(const RunData& run);

}  // namespace rondo
