#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo::launch {

// How the program on the command line is to be started; torchrun's flags of the same names.
struct ProgramKind {
  bool module = false;     // a Python module: python3 -m NAME
  bool no_python = false;  // start it directly even if it ends in .py
};

// The complete command for `program`, with its first word an existing file: a .py file is given to python3
// (or to $PYTHON_EXEC) as torchrun does. Throws UsageError naming the program and where it was looked for.
std::vector<std::string> make_command(const std::string& program, const std::vector<std::string>& arguments,
                                      const ProgramKind& kind);

// Path of `program`: itself when it has a slash, else found in PATH. Throws UsageError when there is no such
// file or it cannot be executed.
std::string find_program(const std::string& program);

// Splits as a shell does: blanks separate, '...' "..." and \ quote. Throws UsageError naming `flag` when a
// quote is not closed or there is no word.
std::vector<std::string> split_words(std::string_view text, std::string_view flag);

}  // namespace rondo::launch
