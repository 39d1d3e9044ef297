#pragma once

#include <string>
#include <string_view>

#include "rondo/base/text.h"

// Severity of a log line. Lines go to standard error as "12:00:01.123 W [rank 3] text". The logging library
// is private to log.cpp.
namespace rondo::log {

enum class Level { debug, info, warning, error, off };

// Parses "debug", "info", "warning", "error" or "off". Throws UsageError for other text.
Level parse_level(std::string_view text);

// Drops lines below `level`. The initial level is RONDO_LOG_LEVEL, or warning. Thread-safe.
void set_level(Level level);

// Sets the prefix of all later lines from threads of the calling thread's replica (replica.h), for example
// "rank 3". In a process with one replica, every line has this prefix. Thread-safe.
void set_prefix(std::string_view prefix);

bool enabled(Level level);
void write(Level level, std::string_view text);

template <class... Parts>
void debug(const Parts&... parts) {
  if (enabled(Level::debug)) write(Level::debug, str(parts...));
}
template <class... Parts>
void info(const Parts&... parts) {
  if (enabled(Level::info)) write(Level::info, str(parts...));
}
template <class... Parts>
void warning(const Parts&... parts) {
  if (enabled(Level::warning)) write(Level::warning, str(parts...));
}
template <class... Parts>
void error(const Parts&... parts) {
  if (enabled(Level::error)) write(Level::error, str(parts...));
}

}  // namespace rondo::log
