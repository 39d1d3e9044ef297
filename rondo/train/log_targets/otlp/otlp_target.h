#pragma once

#include <string>

#include "rondo/options/declaration.h"
#include "rondo/train/log_target.h"

namespace rondo {

// The target otlp: metrics and traces for an OpenTelemetry collector.
struct OtlpTarget {
  struct Options {
    std::string endpoint;     // "http://host:4318"; empty: as the environment says
    std::string interval;     // between metrics, a duration; empty: as the environment says
    bool step_spans = false;  // a span for every step
  };
  static Declaration declaration();
  // Throws UsageError for environment variables (docs/observability.md) that cannot be read, Error where
  // libcurl cannot be loaded.
  static LogTarget make(const Options& options, const LoggedRun& run);
};

}  // namespace rondo
