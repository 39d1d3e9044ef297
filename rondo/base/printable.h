#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rondo {

// A text of somebody else (a file's key, a name, a library's message) as it may stand in a message: control
// characters other than the end of a line and bytes that are no UTF-8 as \xNN, so that nothing moves a
// terminal's cursor, and no longer than `longest` bytes or so: what is left out of the middle is counted.
std::string printable(std::string_view text, std::size_t longest = 120);

}  // namespace rondo
