#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// OpenTelemetry's protocol (OTLP 1.x) in its JSON encoding: the bodies of requests to /v1/metrics and
// /v1/traces, and the content of responses.
namespace rondo::otlp {

using AttributeValue = std::variant<std::string, std::int64_t, double, bool>;
using Attributes = std::vector<std::pair<std::string, AttributeValue>>;

// Nanoseconds since 1970.
using Time = std::int64_t;
Time now();

struct NumberPoint {
  double value = 0;
  Attributes attributes = {};
};

// The upper bounds of a histogram's buckets, in seconds: from 100 us to a minute. Values above the last one
// have a bucket of their own.
inline constexpr std::array kSecondsBounds = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                              0.01,   0.025,   0.05,   0.1,   0.25,   0.5,
                                              1.0,    2.5,     5.0,    10.0,  30.0,   60.0};

// Durations since the beginning of a training, in seconds.
struct HistogramPoint {
  std::uint64_t count = 0;
  double sum = 0, min = 0, max = 0;
  std::array<std::uint64_t, kSecondsBounds.size() + 1> buckets{};
  Attributes attributes = {};

  void add(double value);
};

// A metric of either gauges or histograms.
struct Metric {
  std::string name;         // "rondo.train.loss"
  std::string unit;         // unit in UCUM notation: "s", "By", "1", "{token}/s"
  std::string description;  // a line
  std::vector<NumberPoint> gauges = {};
  std::vector<HistogramPoint> histograms = {};
};

struct SpanEvent {
  std::string name;
  Time time = 0;
  Attributes attributes = {};
};

using TraceId = std::array<std::uint64_t, 2>;

// Random ids that are not zero.
TraceId new_trace_id();
std::uint64_t new_span_id();

struct Span {
  TraceId trace{};
  std::uint64_t id = 0;
  std::uint64_t parent = 0;  // 0: the root
  std::string name;
  Time begin = 0, end = 0;
  Attributes attributes = {};
  std::vector<SpanEvent> events = {};
  bool failed = false;
  std::string error = {};  // with `failed`
};

// The body of a request to /v1/metrics. Values were measured at `time`; histograms began at `begin`. Numbers
// that are not finite are written as "NaN", "Infinity" and "-Infinity".
std::string metrics_request(const Attributes& resource, std::span<const Metric> metrics, Time begin,
                            Time time);

// The body of a request to /v1/traces.
std::string traces_request(const Attributes& resource, std::span<const Span> spans);

// The number of data points in `metrics`.
std::int64_t count_points(std::span<const Metric> metrics);

// The part of a request that the receiver has rejected.
struct PartialSuccess {
  std::int64_t rejected = 0;  // number of rejected data points or spans
  std::string message = {};
};

// Parses the body of a response. A body that is not OTLP's JSON rejects nothing.
PartialSuccess read_response(std::string_view body);

}  // namespace rondo::otlp
