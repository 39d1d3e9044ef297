#include "rondo/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

#include "rondo/base/error.h"

namespace rondo::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      return spdlog::level::off;
  }
  return spdlog::level::warn;
}

std::string pattern(std::string_view prefix) {
  if (prefix.empty()) return "%H:%M:%S.%e %^%L%$ %v";
  std::string escaped;
  for (const char c : prefix) escaped += c == '%' ? std::string("%%") : std::string(1, c);
  return "%H:%M:%S.%e %^%L%$ [" + escaped + "] %v";
}

// A function-local static: made at the first line, safe from any thread, and never destroyed before the last
// one.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("rondo", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern(pattern(""));
    const char* level = std::getenv("RONDO_LOG_LEVEL");
    made->set_level(spdlog::level::warn);
    if (level != nullptr) {
      try {
        made->set_level(to_spdlog(parse_level(level)));
      } catch (const UsageError& e) {
        made->warn("RONDO_LOG_LEVEL: {}", e.what());
      }
    }
    return made;
  }();
  return *instance;
}

}  // namespace

Level parse_level(std::string_view text) {
  if (text == "debug") return Level::debug;
  if (text == "info") return Level::info;
  if (text == "warning" || text == "warn") return Level::warning;
  if (text == "error") return Level::error;
  if (text == "off") return Level::off;
  throw UsageError(str("log level '", text, "' is not one of debug, info, warning, error, off"));
}

void set_level(Level level) { logger().set_level(to_spdlog(level)); }

void set_prefix(std::string_view prefix) { logger().set_pattern(pattern(prefix)); }

bool enabled(Level level) { return logger().should_log(to_spdlog(level)); }

void write(Level level, std::string_view text) { logger().log(to_spdlog(level), "{}", text); }

}  // namespace rondo::log
