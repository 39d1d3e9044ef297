#pragma once

#include <optional>
#include <string_view>

namespace rondo {

// Returns the value of a decimal number, perhaps with a leading plus sign; nullopt for any other text. A
// value too small for a double is 0, one too large an infinity; "nan" and "inf" are numbers that are not
// finite.
std::optional<double> read_csv_number(std::string_view text);

// Returns whether the text is a number once its only comma is replaced by a decimal point: "0,53".
bool has_decimal_comma(std::string_view text);

}  // namespace rondo
