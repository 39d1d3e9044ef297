#include "rondo/format/otlp.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/base/version.h"

namespace rondo::otlp {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCumulative = 2;  // AggregationTemporality
constexpr int kInternal = 1;    // SpanKind
constexpr int kError = 2;       // StatusCode

std::string hex(std::uint64_t number) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(number));
  return text.data();
}

// The JSON encoding of protobuf writes 64-bit integers as texts.
template <class Integer>
std::string integer(Integer value) {
  return std::to_string(value);
}

Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Json attribute_value(const AttributeValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return {{"stringValue", *text}};
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return {{"intValue", integer(*whole)}};
  if (const auto* real = std::get_if<double>(&value)) return {{"doubleValue", number(*real)}};
  return {{"boolValue", std::get<bool>(value)}};
}

Json list_of(const Attributes& attributes) {
  Json list = Json::array();
  for (const auto& [key, value] : attributes)
    list.push_back({{"key", key}, {"value", attribute_value(value)}});
  return list;
}

Json scope() { return {{"name", "rondo"}, {"version", kVersion}}; }

// Texts may come from files and errors in any encoding.
std::string text_of(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json gauge_json(const std::vector<NumberPoint>& points, Time time) {
  Json list = Json::array();
  for (const NumberPoint& point : points) {
    Json entry = {{"timeUnixNano", integer(time)}, {"asDouble", number(point.value)}};
    if (!point.attributes.empty()) entry["attributes"] = list_of(point.attributes);
    list.push_back(std::move(entry));
  }
  return {{"dataPoints", std::move(list)}};
}

Json histogram_json(const std::vector<HistogramPoint>& points, Time begin, Time time) {
  Json list = Json::array();
  for (const HistogramPoint& point : points) {
    Json buckets = Json::array();
    for (const std::uint64_t count : point.buckets) buckets.push_back(integer(count));
    list.push_back({{"attributes", list_of(point.attributes)},
                    {"startTimeUnixNano", integer(begin)},
                    {"timeUnixNano", integer(time)},
                    {"count", integer(point.count)},
                    {"sum", number(point.sum)},
                    {"min", number(point.min)},
                    {"max", number(point.max)},
                    {"bucketCounts", std::move(buckets)},
                    {"explicitBounds", kSecondsBounds}});
  }
  return {{"aggregationTemporality", kCumulative}, {"dataPoints", std::move(list)}};
}

Json span_json(const Span& span) {
  Json entry = {{"traceId", hex(span.trace[0]) + hex(span.trace[1])}, {"spanId", hex(span.id)}};
  if (span.parent != 0) entry["parentSpanId"] = hex(span.parent);
  entry["name"] = span.name;
  entry["kind"] = kInternal;
  entry["startTimeUnixNano"] = integer(span.begin);
  entry["endTimeUnixNano"] = integer(span.end);
  entry["attributes"] = list_of(span.attributes);
  if (!span.events.empty()) {
    entry["events"] = Json::array();
    for (const SpanEvent& event : span.events) {
      entry["events"].push_back({{"timeUnixNano", integer(event.time)},
                                 {"name", event.name},
                                 {"attributes", list_of(event.attributes)}});
    }
  }
  if (span.failed) entry["status"] = {{"code", kError}, {"message", span.error}};
  return entry;
}

std::mt19937_64& generator() {
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return random;
}

// A 64-bit integer is a text or a number.
std::int64_t integer_in(const Json& value) {
  if (value.is_number_integer()) return value.get<std::int64_t>();
  std::int64_t result = 0;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    std::from_chars(text.data(), text.data() + text.size(), result);
  }
  return result;
}

}  // namespace

Time now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TraceId new_trace_id() { return {new_span_id(), new_span_id()}; }

std::uint64_t new_span_id() {
  std::uint64_t id = 0;
  while (id == 0) id = generator()();
  return id;
}

void HistogramPoint::add(double value) {
  min = count == 0 ? value : std::min(min, value);
  max = count == 0 ? value : std::max(max, value);
  ++count;
  sum += value;
  const auto bucket = std::lower_bound(kSecondsBounds.begin(), kSecondsBounds.end(), value);
  ++buckets[static_cast<std::size_t>(bucket - kSecondsBounds.begin())];
}

std::string metrics_request(const Attributes& resource, std::span<const Metric> metrics, Time begin,
                            Time time) {
  Json list = Json::array();
  for (const Metric& metric : metrics) {
    Json entry = {{"name", metric.name}, {"description", metric.description}, {"unit", metric.unit}};
    if (metric.histograms.empty()) {
      entry["gauge"] = gauge_json(metric.gauges, time);
    } else {
      entry["histogram"] = histogram_json(metric.histograms, begin, time);
    }
    list.push_back(std::move(entry));
  }
  const Json of_scope = {{"scope", scope()}, {"metrics", std::move(list)}};
  const Json of_resource = {{"resource", {{"attributes", list_of(resource)}}},
                            {"scopeMetrics", Json::array({of_scope})}};
  return text_of({{"resourceMetrics", Json::array({of_resource})}});
}

std::string traces_request(const Attributes& resource, std::span<const Span> spans) {
  Json list = Json::array();
  for (const Span& span : spans) list.push_back(span_json(span));
  const Json of_scope = {{"scope", scope()}, {"spans", std::move(list)}};
  const Json of_resource = {{"resource", {{"attributes", list_of(resource)}}},
                            {"scopeSpans", Json::array({of_scope})}};
  return text_of({{"resourceSpans", Json::array({of_resource})}});
}

std::int64_t count_points(std::span<const Metric> metrics) {
  std::size_t points = 0;
  for (const Metric& metric : metrics) points += metric.gauges.size() + metric.histograms.size();
  return static_cast<std::int64_t>(points);
}

PartialSuccess read_response(std::string_view body) {
  PartialSuccess result;
  try {
    const Json document = parse_json_strict(body, "the response");
    if (!document.is_object() || !document.contains("partialSuccess")) return {};
    const Json& partial = document["partialSuccess"];
    if (!partial.is_object()) return {};
    for (const char* const key : {"rejectedDataPoints", "rejectedSpans"}) {
      if (partial.contains(key)) result.rejected += integer_in(partial[key]);
    }
    if (partial.contains("errorMessage") && partial["errorMessage"].is_string())
      result.message = partial["errorMessage"].get<std::string>();
  } catch (const DataError&) {
    return {};
  }
  return result;
}

}  // namespace rondo::otlp
