#include <algorithm>
#include <array>
#include <cmath>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"

namespace rondo {

Bytes parse_bytes(std::string_view text, std::string_view what) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string suffix(trim(text.substr(digits)));
  std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  struct Unit {
    const char* name;
    double bytes;
  };
  constexpr std::array<Unit, 10> units{{{"", 1},
                                        {"b", 1},
                                        {"kib", 1024.0},
                                        {"mib", 1048576.0},
                                        {"gib", 1073741824.0},
                                        {"tib", 1099511627776.0},
                                        {"kb", 1e3},
                                        {"mb", 1e6},
                                        {"gb", 1e9},
                                        {"tb", 1e12}}};
  const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return suffix == u.name; });
  if (digits == 0 || unit == units.end()) {
    throw UsageError(str(what, ": '", text, "' is not a size; write for example 512, 64KiB, 25MiB or 2GiB"));
  }
  const double value = parse_number(text.substr(0, digits), what) * unit->bytes;
  if (value >= 9.2e18) throw UsageError(str(what, ": '", text, "' is larger than 2^63 bytes"));
  return {static_cast<std::uint64_t>(std::llround(value))};
}

std::string to_string(Bytes bytes) {
  constexpr std::array<const char*, 5> names{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes.count);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < names.size()) {
    value /= 1024;
    ++unit;
  }
  TextStream text;
  text << std::fixed;
  text.precision(unit == 0 ? 0 : 1);
  text << value << ' ' << names[unit];
  return text.str();
}

Duration parse_duration(std::string_view text, std::string_view what) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view suffix = trim(text.substr(digits));
  struct Unit {
    std::string_view name;
    double seconds;
  };
  constexpr std::array<Unit, 7> units{
      {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"min", 60}, {"m", 60}, {"h", 3600}}};
  const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return suffix == u.name; });
  if (digits == 0 || unit == units.end()) {
    throw UsageError(
        str(what, ": '", text, "' is not a duration; write for example 30, 1.5s, 200ms or 2min"));
  }
  const double value = parse_number(text.substr(0, digits), what) * unit->seconds;
  if (value > 1e9) throw UsageError(str(what, ": '", text, "' is longer than 30 years"));
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

std::string to_string(Duration duration) {
  const double s = seconds(duration);
  TextStream text;
  text.precision(3);
  if (s >= 1 || s == 0) {
    text << s << " s";
  } else if (s >= 1e-3) {
    text << s * 1e3 << " ms";
  } else {
    text << s * 1e6 << " us";
  }
  return text.str();
}

long long monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

}  // namespace rondo
