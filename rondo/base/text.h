#pragma once

#include <locale>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// A stream into a text in the classic locale, whatever the program's global one is: what a program reads must
// not have its thousands separators and decimal commas.
class TextStream : public std::ostringstream {
 public:
  TextStream() { imbue(std::locale::classic()); }
};

// Concatenates anything that can be streamed: str("rank ", 3, " of ", 4). In the classic locale.
template <class... Parts>
std::string str(const Parts&... parts) {
  TextStream out;
  (out << ... << parts);
  return out.str();
}

// Items joined by `separator`: join({1, 2, 3}, ", ") is "1, 2, 3".
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

// Without leading and trailing blanks, tabs and line ends.
std::string_view trim(std::string_view text);

// Whole text as a decimal integer; throws UsageError that names `what` and the text when it is not one.
long long parse_integer(std::string_view text, std::string_view what);

// Whole text as a finite number; throws UsageError that names `what` and the text when it is not one.
double parse_number(std::string_view text, std::string_view what);

}  // namespace rondo
