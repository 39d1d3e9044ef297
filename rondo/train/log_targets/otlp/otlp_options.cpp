#include "rondo/control/http_client.h"
#include "rondo/train/log_targets/otlp/otlp_target.h"

namespace rondo {

Declaration OtlpTarget::declaration() {
  OptionsOf<Options> table;
  table.add("otlp-endpoint", &Options::endpoint,
            "URL of the collector; default $OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318",
            {.check = control::check_http_url, .type = "URL"});
  table.add("otlp-interval", &Options::interval,
            "Time between exports of metrics; default $OTEL_METRIC_EXPORT_INTERVAL, else 60s", duration());
  table.add("otlp-step-spans", &Options::step_spans, "Also record a span for every step");
  table.without_flags({"otlp-endpoint", "otlp-interval", "otlp-step-spans"});
  return {"otlp", "metrics and traces for an OpenTelemetry collector (OTLP over HTTP)", table};
}

}  // namespace rondo
