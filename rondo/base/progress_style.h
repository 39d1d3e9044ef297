#pragma once

#include <string_view>

namespace rondo {

// Style of the progress display.
enum class ProgressStyle {
  automatic,  // a bar on a terminal, lines elsewhere
  bar,        // one line that is redrawn
  lines,      // occasional lines
  off,        // nothing
};

// Reads "auto", "bar", "lines" or "off"; throws UsageError otherwise.
ProgressStyle parse_progress_style(std::string_view text);

}  // namespace rondo
