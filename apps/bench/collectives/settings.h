#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/bench/collectives/tournament.h"
#include "rondo/base/bytes.h"

namespace rondo::bench {

// What `rondo bench collectives` measures, and how.
struct CollectivesSettings {
  std::vector<std::string> operations;
  std::vector<int> ranks;
  std::vector<Bytes> sizes;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::string> codecs;
  bool fresh = false;
  bool peers = false;
  bool table = true;
  Effort effort;
  // Plans to run beside the engine, each over each channel.
  std::vector<std::string> algorithms;
  std::vector<std::string> channels;
  int hosts = 1;  // that plans are made for
  bool tune = false;
  bool check_chooser = false;  // measure again after tuning
  bool deterministic = false;

  bool uses(const std::string& channel) const {
    return std::find(channels.begin(), channels.end(), channel) != channels.end();
  }
};

}  // namespace rondo::bench
