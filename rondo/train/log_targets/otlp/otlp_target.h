#pragma once

#include <string>

#include "rondo/options/declaration.h"
#include "rondo/train/log_target.h"

namespace rondo {

// The log target otlp: metrics and traces for an OpenTelemetry collector.
struct OtlpTarget {
  struct Options {
    std::string endpoint;     // "http://host:4318"; empty: from the environment
    std::string interval;     // duration between metrics; empty: from the environment
    bool step_spans = false;  // whether every step has a span
  };
  static Declaration declaration();
  // Throws UsageError for invalid environment variables (docs/observability.md), and Error if libcurl cannot
  // be loaded.
  static LogTarget make(const Options& options, const LoggedRun& run);
};

}  // namespace rondo
