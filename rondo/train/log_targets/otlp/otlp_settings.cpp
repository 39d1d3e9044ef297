#include "rondo/train/log_targets/otlp/otlp_settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/control/http_client.h"

namespace rondo {
namespace {

constexpr const char* kDefaultEndpoint = "http://localhost:4318";

// Decodes "%2C" to ",". Returns an empty value if a "%" is not followed by two hexadecimal digits.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    unsigned char byte = 0;
    if (i + 3 > text.size()) return std::nullopt;
    const auto [end, error] = std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16);
    if (error != std::errc() || end != text.data() + i + 3) return std::nullopt;
    result += static_cast<char>(byte);
    i += 2;
  }
  return result;
}

// Parses "name=value,name=value", the format of W3C Baggage.
std::vector<std::pair<std::string, std::string>> read_pairs(const std::string& text,
                                                            const std::string& variable) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& item : split(text, ',')) {
    if (trim(item).empty()) continue;
    const std::size_t equals = item.find('=');
    const auto value =
        percent_decoded(trim(std::string_view(item).substr(std::min(item.size(), equals + 1))));
    const auto name = percent_decoded(trim(std::string_view(item).substr(0, equals)));
    const bool has_line_end = value && value->find_first_of("\r\n") != std::string::npos;
    if (equals == std::string::npos || !name || name->empty() || !value || has_line_end)
      throw UsageError(str(variable, ": expected NAME=VALUE,NAME=VALUE with percent-encoded values"));
    pairs.emplace_back(*name, *value);
  }
  return pairs;
}

Duration read_milliseconds(const std::string& text, const std::string& variable) {
  const long long number = parse_integer(text, variable);
  if (number <= 0) throw UsageError(str(variable, " ", text, ": expected milliseconds above 0"));
  return bounded_duration(std::chrono::milliseconds(number));
}

class Reader {
 public:
  explicit Reader(const env::EnvironmentMap& environment) : environment_(environment) {}

  // A variable's value, with its name for messages.
  struct Found {
    std::string variable, value;
    bool is_of_signal = false;
  };
  std::optional<Found> find(const std::string& signal, const std::string& name) const {
    for (const bool is_of_signal : {true, false}) {
      const std::string variable = "OTEL_EXPORTER_OTLP_" + (is_of_signal ? signal + "_" : "") + name;
      if (const auto value = env::lookup(environment_, variable))
        return Found{variable, *value, is_of_signal};
    }
    return std::nullopt;
  }

  std::string url(const std::string& signal, const std::string& path, const std::string& endpoint) const {
    Found base{"otlp-endpoint", endpoint};
    if (endpoint.empty()) base = find(signal, "ENDPOINT").value_or(Found{"", kDefaultEndpoint});
    control::check_http_url(base.value, base.variable);
    if (base.is_of_signal) return base.value;
    while (base.value.ends_with('/')) base.value.pop_back();
    return base.value + path;
  }

  OtlpSettings::Signal signal(const std::string& name, const std::string& path,
                              const std::string& endpoint) const {
    OtlpSettings::Signal signal{.url = url(name, path, endpoint), .headers = {}, .certificates = {}};
    if (const auto headers = find(name, "HEADERS"))
      signal.headers = read_pairs(headers->value, headers->variable);
    if (const auto timeout = find(name, "TIMEOUT"))
      signal.timeout = read_milliseconds(timeout->value, timeout->variable);
    if (const auto file = find(name, "CERTIFICATE")) signal.certificates = file->value;
    return signal;
  }

 private:
  const env::EnvironmentMap& environment_;
};

}  // namespace

OtlpSettings read_otlp_settings(const env::EnvironmentMap& environment, const std::string& endpoint) {
  const Reader reader(environment);
  OtlpSettings settings;
  settings.metrics = reader.signal("METRICS", "/v1/metrics", endpoint);
  settings.traces = reader.signal("TRACES", "/v1/traces", endpoint);
  const std::string interval = "OTEL_METRIC_EXPORT_INTERVAL", attributes = "OTEL_RESOURCE_ATTRIBUTES";
  if (const auto value = env::lookup(environment, interval))
    settings.interval = read_milliseconds(*value, interval);
  if (const auto value = env::lookup(environment, attributes)) {
    for (auto& [name, text] : read_pairs(*value, attributes)) settings.resource.emplace_back(name, text);
  }
  if (const auto name = env::lookup(environment, "OTEL_SERVICE_NAME")) {
    std::erase_if(settings.resource, [](const auto& each) { return each.first == "service.name"; });
    settings.resource.emplace_back("service.name", *name);
  }
  return settings;
}

}  // namespace rondo
