#include "rondo/base/bytes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

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

}  // namespace rondo
