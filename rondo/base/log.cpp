#include "rondo/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "rondo/base/error.h"
#include "rondo/base/progress_line.h"
#include "rondo/base/replica.h"

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

// Log prefixes by replica number: "[rank 3] ".
struct Prefixes {
  std::mutex mutex;  // protects by_replica
  std::map<int, std::string> by_replica;
};

// Never destroyed, like the logger.
Prefixes& prefixes() {
  static auto* const instance = new Prefixes();
  return *instance;
}

// Formatter of "%_" in a pattern: removes a drawn progress line, which the log line would continue.
class ProgressFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg&, const std::tm&, spdlog::memory_buf_t& line) override {
    const std::string_view erase = take_progress_line();
    line.append(erase.data(), erase.data() + erase.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<ProgressFlag>(); }
};

// Formatter of "%*" in a pattern: the prefix of the calling thread. The thread that logs a line also formats
// it.
class PrefixFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg&, const std::tm&, spdlog::memory_buf_t& line) override {
    Prefixes& known = prefixes();
    const std::lock_guard lock(known.mutex);
    const auto found = known.by_replica.find(this_replica());
    if (found != known.by_replica.end())
      line.append(found->second.data(), found->second.data() + found->second.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<PrefixFlag>(); }
};

std::unique_ptr<spdlog::formatter> line_formatter() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PrefixFlag>('*').add_flag<ProgressFlag>('_').set_pattern("%_%H:%M:%S.%e %^%L%$ %*%v");
  return formatter;
}

// A function-local static: created by the first log line in any thread and never destroyed, so that the last
// line can still use it.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("rondo", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_formatter(line_formatter());
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

void set_prefix(std::string_view prefix) {
  Prefixes& known = prefixes();
  const std::lock_guard lock(known.mutex);
  known.by_replica[this_replica()] = prefix.empty() ? std::string() : str("[", prefix, "] ");
}

bool enabled(Level level) { return logger().should_log(to_spdlog(level)); }

void write(Level level, std::string_view text) { logger().log(to_spdlog(level), "{}", text); }

}  // namespace rondo::log
