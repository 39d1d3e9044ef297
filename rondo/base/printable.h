#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

namespace rondo {

// Returns foreign text (a file's key, a name, a library's message) in a form that is safe in messages.
// Control characters other than newline and invalid UTF-8 become \xNN, so that the text cannot move a
// terminal's cursor. Text longer than about `longest` bytes is cut in the middle, with the number of bytes
// left out.
std::string printable(std::string_view text, std::size_t longest = 120);

// Returns the length in bytes of the first character of `text`, which must not be empty. Returns 0 if it is
// invalid UTF-8: truncated, overlong, a surrogate or above U+10FFFF.
std::size_t utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

// Returns the message of an error without libtorch's stack trace and source location. If
// TORCH_SHOW_CPP_STACKTRACES is 1, returns the whole message, as libtorch does. For a file system error,
// returns the path and the reason without the name of the standard library's function.
std::string plain_message(const std::exception& error);

}  // namespace rondo
