#include "rondo/format/otlp.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "rondo/format/otlp_metrics.h"

namespace rondo::otlp_test {
namespace {

using nlohmann::json;

const otlp::Attributes kResource = {{"service.name", std::string("rondo")}, {"rondo.rank", std::int64_t{0}}};

MetricsRow row(int rank, std::int64_t step) {
  MetricsRow row;
  row.rank = rank;
  row.step = step;
  row.loss = std::numeric_limits<double>::quiet_NaN();
  row.learning_rate = 1e-3;
  row.tokens_per_s = 512;
  row.step_ms = 125;
  row.compute_ms = 100.5 + rank;
  row.peak_bytes = 1ULL << 33;
  if (step == 1) row.others = {{"gradient norm", 2.5}};
  return row;
}

std::map<std::string, json> metrics_of(otlp::TrainingMetrics& metrics) {
  const json body = json::parse(otlp::metrics_request(kResource, metrics.metrics(), 1000, 2000));
  std::map<std::string, json> result;
  for (const json& metric : body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"])
    result[metric["name"]] = metric;
  return result;
}

TEST(Otlp, HasNewestFiguresAndAllStepDurations) {
  otlp::TrainingMetrics metrics;
  EXPECT_FALSE(metrics.changed());
  for (const std::int64_t step : {1, 2, 3}) metrics.add(std::vector{row(0, step), row(1, step)});
  MetricsRow validation;
  validation.step = 3;
  validation.validation_loss = 0.25;
  validation.others = {{"validation_f1", 0.5}};
  metrics.add({&validation, 1});
  EXPECT_TRUE(metrics.changed());
  auto found = metrics_of(metrics);
  EXPECT_FALSE(metrics.changed());
  const auto gauge = [&](const std::string& name) { return found[name]["gauge"]["dataPoints"][0]; };
  EXPECT_EQ(gauge("rondo.train.step")["asDouble"], 3.0);
  EXPECT_EQ(gauge("rondo.train.step")["timeUnixNano"], "2000");
  EXPECT_EQ(gauge("rondo.train.loss")["asDouble"], "NaN");
  EXPECT_EQ(found["rondo.train.token.rate"]["unit"], "{token}/s");
  EXPECT_EQ(gauge("rondo.train.gradient_norm")["asDouble"], 2.5);  // of step 1: not every step measures it
  EXPECT_EQ(gauge("rondo.validation.loss")["asDouble"], 0.25);
  EXPECT_EQ(gauge("rondo.validation.f1")["asDouble"], 0.5);
  const json memory = found["rondo.memory.tracked.peak"]["gauge"]["dataPoints"];
  ASSERT_EQ(memory.size(), 2U);
  EXPECT_EQ(memory[1]["attributes"][0]["value"]["intValue"], "1");
  const json durations = found["rondo.train.step.duration"]["histogram"];
  EXPECT_EQ(durations["aggregationTemporality"], 2);
  ASSERT_EQ(durations["dataPoints"].size(), 2U);
  const json point = durations["dataPoints"][1];
  EXPECT_EQ(point["count"], "3");
  EXPECT_EQ(point["sum"], 0.375);
  EXPECT_EQ(point["startTimeUnixNano"], "1000");
  EXPECT_EQ(point["bucketCounts"].size(), point["explicitBounds"].size() + 1);
  EXPECT_EQ(found.count("rondo.train.communication.duration"), 0U);  // was not measured
}

TEST(Otlp, CountsValuesInBucketsByBound) {
  otlp::HistogramPoint point;
  for (const double value : {0.0001, 0.00011, 60.0, 61.0}) point.add(value);
  EXPECT_EQ(point.buckets.front(), 1U);  // bounds are inclusive
  EXPECT_EQ(point.buckets[1], 1U);
  EXPECT_EQ(point.buckets[otlp::kSecondsBounds.size() - 1], 1U);
  EXPECT_EQ(point.buckets.back(), 1U);
  EXPECT_EQ(point.min, 0.0001);
  EXPECT_EQ(point.max, 61.0);
}

TEST(Otlp, SpansHaveHexadecimalIdsAndTheirParents) {
  const otlp::Span span{.trace = {1, 0xABC},
                        .id = 2,
                        .parent = 3,
                        .name = "epoch",
                        .begin = 10,
                        .end = 20,
                        .attributes = {{"ok", true}, {"text", std::string("a\xff")}, {"x", 0.5}},
                        .events = {{"exception", 15}},
                        .failed = true,
                        .error = "why"};
  const json body = json::parse(otlp::traces_request(kResource, {&span, 1}));
  const json found = body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(found["traceId"], "00000000000000010000000000000abc");
  EXPECT_EQ(found["spanId"], "0000000000000002");
  EXPECT_EQ(found["parentSpanId"], "0000000000000003");
  EXPECT_EQ(found["startTimeUnixNano"], "10");
  EXPECT_EQ(found["status"]["code"], 2);
  EXPECT_EQ(found["events"][0]["name"], "exception");
  EXPECT_EQ(found["attributes"][0]["value"]["boolValue"], true);
  EXPECT_NE(otlp::new_span_id(), otlp::new_span_id());
}

TEST(Otlp, ReadsWhatACollectorRefuses) {
  const otlp::PartialSuccess partial =
      otlp::read_response(R"({"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}})");
  EXPECT_EQ(partial.rejected, 3);
  EXPECT_EQ(partial.message, "too old");
  EXPECT_EQ(otlp::read_response(R"({"partialSuccess":{"rejectedDataPoints":2}})").rejected, 2);
  for (const char* body :
       {"", "{}", "[]", "no JSON", R"({"partialSuccess":[]})", R"({"partialSuccess":{"rejectedSpans":{}}})"})
    EXPECT_EQ(otlp::read_response(body).rejected, 0) << body;
}

}  // namespace
}  // namespace rondo::otlp_test
