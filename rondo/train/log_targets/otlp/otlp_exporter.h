#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "rondo/base/time.h"
#include "rondo/format/metrics_row.h"
#include "rondo/format/otlp.h"
#include "rondo/train/log_targets/otlp/otlp_settings.h"

namespace rondo {

// Sends metrics and spans to a collector on a thread of its own. Callers only add to bounded memory and never
// wait for the network. A request that the collector cannot take now (no connection, a timeout, 429, 502,
// 503, 504) is sent again after 1 s, then after up to 30 s, or after the time in Retry-After; any other
// response drops its data. The first failure after a success logs a warning. Dropped data is counted, and a
// warning reports the count at the end. Any thread.
class OtlpExporter {
 public:
  static constexpr std::size_t kMostSpans =
      2048;  // maximum number of spans in memory; later ones are dropped
  static constexpr std::size_t kSpansOfARequest = 512;  // at most

  // Throws Error if libcurl cannot be loaded.
  OtlpExporter(const OtlpSettings& settings, otlp::Attributes resource);
  // Calls finish() with a limit of one second if it was not called.
  ~OtlpExporter();
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  // Adds the rows of all ranks of a step, or the row of a validation.
  void add(std::span<const MetricsRow> rows);
  void add(otlp::Span span);

  // Starts sending all remaining data, for at most `limit`. Does not wait.
  void begin_finish(Duration limit);
  // Calls begin_finish() if it was not called, and waits for the thread, for at most one second more than the
  // limit.
  void finish(Duration limit);

  // Returns the number of spans and data points that were dropped, or could not be sent until finish() timed
  // out.
  std::int64_t dropped() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
