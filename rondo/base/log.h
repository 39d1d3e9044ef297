#pragma once

#include <string>
#include <string_view>

#include "rondo/base/text.h"

// Log lines go to standard error as "12:00:01.123 W [rank 3] text". The library behind is private to log.cpp.
namespace rondo::log {

enum class Level { debug, info, warning, error, off };

// Reads "debug", "info", "warning", "error" or "off"; throws UsageError otherwise.
Level parse_level(std::string_view text);

// Lines below `level` are dropped. The start value is RONDO_LOG_LEVEL, or warning. Any thread.
void set_level(Level level);

// Shown in every later line of the threads of the calling thread's replica (replica.h), for example "rank 3";
// in a process that is one replica, in every line. Any thread.
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
