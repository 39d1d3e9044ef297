#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

namespace rondo {

// A text of somebody else (a file's key, a name, a library's message) as it may stand in a message: control
// characters other than the end of a line and bytes that are no UTF-8 as \xNN, so that nothing moves a
// terminal's cursor, and no longer than `longest` bytes or so: what is left out of the middle is counted.
std::string printable(std::string_view text, std::size_t longest = 120);

// Bytes of the character that `text`, which is not empty, begins with; 0 where that is no UTF-8: cut, too
// long for its value, a surrogate or beyond U+10FFFF.
std::size_t utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

// What an error says, without what libtorch's errors carry besides: the stack of calls behind the message and
// the place in libtorch's source before it. All of it where TORCH_SHOW_CPP_STACKTRACES is 1, as in libtorch.
// Of an error of the file system the path and what was wrong, without the standard library's name of a
// function.
std::string plain_message(const std::exception& error);

}  // namespace rondo
