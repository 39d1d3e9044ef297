#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/env/environment.h"
#include "rondo/format/otlp.h"

namespace rondo {

// Settings of an exporter, from OpenTelemetry's environment variables (specification 1.x, "OpenTelemetry
// Protocol Exporter" and "Environment Variable Specification").
struct OtlpSettings {
  // Settings from OTEL_EXPORTER_OTLP_X; OTEL_EXPORTER_OTLP_METRICS_X or OTEL_EXPORTER_OTLP_TRACES_X takes
  // precedence.
  struct Signal {
    std::string url;  // complete URL with its path
    std::vector<std::pair<std::string, std::string>> headers;
    Duration timeout = std::chrono::seconds(10);
    std::string certificates;  // file of trusted certificates; empty: those of the system
  };
  Signal metrics, traces;
  Duration interval = std::chrono::seconds(60);  // OTEL_METRIC_EXPORT_INTERVAL
  // OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME, which takes precedence.
  otlp::Attributes resource;
};

// Reads the settings. A non-empty `endpoint` overrides all variables for URLs. Throws UsageError naming an
// invalid variable; the message contains no values of headers.
OtlpSettings read_otlp_settings(const env::EnvironmentMap& environment, const std::string& endpoint);

}  // namespace rondo
