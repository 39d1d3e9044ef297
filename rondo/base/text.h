#pragma once

#include <locale>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// A string stream that always uses the classic locale, so that output for programs has no thousands
// separators or decimal commas.
class TextStream : public std::ostringstream {
 public:
  TextStream() { imbue(std::locale::classic()); }
};

// Concatenates all streamable values in the classic locale: str("rank ", 3, " of ", 4).
template <class... Parts>
std::string str(const Parts&... parts) {
  TextStream out;
  (out << ... << parts);
  return out.str();
}

// Joins items with `separator`: join({1, 2, 3}, ", ") is "1, 2, 3".
template <class Items>
std::string join(const Items& items, std::string_view separator) {
  TextStream out;
  bool first = true;
  for (const auto& item : items) {
    if (!first) out << separator;
    out << item;
    first = false;
  }
  return out.str();
}

// Splits at every `separator`; "a,,b" gives three fields; an empty text gives none.
std::vector<std::string> split(std::string_view text, char separator);

// Returns `text` without leading and trailing blanks, tabs and line ends.
std::string_view trim(std::string_view text);

// Parses the whole text as a decimal integer. Throws UsageError that names `what` and the text.
long long parse_integer(std::string_view text, std::string_view what);

// Parses the whole text as a finite number. Throws UsageError that names `what` and the text.
double parse_number(std::string_view text, std::string_view what);

}  // namespace rondo
