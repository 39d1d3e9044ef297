#include "rondo/train/log_targets/log_targets.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/train/log_targets/otlp/otlp_settings.h"
#include "tests/errors.h"

namespace rondo::log_targets_test {
namespace {

TEST(LogTargets, NameTheirOptionsAfterThemselves) {
  EXPECT_EQ(declared_log_targets().size(), std::tuple_size_v<LogTargetTypes>);
  for (const Declaration& target : declared_log_targets()) {
    for (const Option& option : target.options.options()) {
      EXPECT_TRUE(option.name.starts_with(target.name + "-")) << option.name;
      EXPECT_FALSE(option.has_flag) << option.name;
    }
  }
}

TEST(OtlpSettings, AreThoseOfTheSpecificationWithoutVariables) {
  const OtlpSettings settings = read_otlp_settings({}, "");
  EXPECT_EQ(settings.metrics.url, "http://localhost:4318/v1/metrics");
  EXPECT_EQ(settings.traces.url, "http://localhost:4318/v1/traces");
  EXPECT_EQ(settings.traces.timeout, std::chrono::seconds(10));
  EXPECT_EQ(settings.interval, std::chrono::seconds(60));
  EXPECT_TRUE(settings.resource.empty());
}

TEST(OtlpSettings, AVariableOfOneSignalTakesPrecedence) {
  const env::EnvironmentMap environment = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://all:1/base/"},
                                           {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:2/as/it/is"},
                                           {"OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%2Cb%20c, x=1"},
                                           {"OTEL_EXPORTER_OTLP_METRICS_HEADERS", "y=2"},
                                           {"OTEL_EXPORTER_OTLP_TIMEOUT", "250"},
                                           {"OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "500"},
                                           {"OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"},
                                           {"OTEL_METRIC_EXPORT_INTERVAL", "1500"},
                                           {"OTEL_RESOURCE_ATTRIBUTES", "service.name=first,team=a%3Db"},
                                           {"OTEL_SERVICE_NAME", "second"}};
  const OtlpSettings settings = read_otlp_settings(environment, "");
  EXPECT_EQ(settings.metrics.url, "https://all:1/base/v1/metrics");
  EXPECT_EQ(settings.traces.url, "http://traces:2/as/it/is");
  using Headers = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(settings.traces.headers, (Headers{{"api-key", "a,b c"}, {"x", "1"}}));
  EXPECT_EQ(settings.metrics.headers, (Headers{{"y", "2"}}));
  EXPECT_EQ(settings.traces.timeout, std::chrono::milliseconds(250));
  EXPECT_EQ(settings.metrics.timeout, std::chrono::milliseconds(500));
  EXPECT_EQ(settings.traces.certificates, "/ca.pem");
  EXPECT_EQ(settings.interval, std::chrono::milliseconds(1500));
  EXPECT_EQ(settings.resource, (otlp::Attributes{{"team", "a=b"}, {"service.name", "second"}}));
  EXPECT_EQ(read_otlp_settings(environment, "http://given:3").traces.url, "http://given:3/v1/traces");
}

TEST(OtlpSettings, NameTheVariableThatCannotBeRead) {
  const std::pair<std::string, std::string> wrong[] = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "host:4318"},
                                                       {"OTEL_EXPORTER_OTLP_HEADERS", "secret"},
                                                       {"OTEL_EXPORTER_OTLP_HEADERS", "a=secret%2"},
                                                       {"OTEL_EXPORTER_OTLP_HEADERS", "a=secret%0Ab"},
                                                       {"OTEL_EXPORTER_OTLP_TIMEOUT", "-1"},
                                                       {"OTEL_METRIC_EXPORT_INTERVAL", "1s"},
                                                       {"OTEL_RESOURCE_ATTRIBUTES", "=x"}};
  for (const auto& [variable, value] : wrong) {
    try {
      read_otlp_settings({{variable, value}}, "");
      ADD_FAILURE() << variable << " " << value;
    } catch (const UsageError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(variable), std::string::npos) << text;
      EXPECT_EQ(text.find("secret"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace rondo::log_targets_test
