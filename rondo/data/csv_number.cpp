#include "rondo/data/csv_number.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

namespace rondo {
namespace {

template <class Number>
std::from_chars_result read_into(std::string_view text, Number& value) {
  return std::from_chars(text.data(), text.data() + text.size(), value);
}

// Tells a number that is too small for a double from one that is too large.
double beyond_double(std::string_view text) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double sign = text.starts_with('-') ? -1.0 : 1.0;
  long double wide = 0;
  if (read_into(text, wide).ec == std::errc()) return wide > -1 && wide < 1 ? 0.0 : sign * kInfinity;
  const std::size_t exponent = text.find_first_of("eE");
  const bool is_small = exponent != std::string_view::npos && text.substr(exponent + 1).starts_with('-');
  return is_small ? 0.0 : sign * kInfinity;
}

}  // namespace

std::optional<double> read_csv_number(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  if (text.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = read_into(text, value);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return beyond_double(text);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

bool has_decimal_comma(std::string_view text) {
  if (std::count(text.begin(), text.end(), ',') != 1) return false;
  std::string with_point(text);
  with_point[with_point.find(',')] = '.';
  return read_csv_number(with_point).has_value();
}

}  // namespace rondo
