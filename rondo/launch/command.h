#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo::launch {

// How to start the program on the command line; torchrun's flags of the same names.
struct ProgramKind {
  bool module = false;     // a Python module: python3 -m NAME
  bool no_python = false;  // start it directly even if it ends in .py
};

// Returns the complete command for `program`; its first word is an existing file. Runs a .py file with
// python3 (or $PYTHON_EXEC), like torchrun. Throws UsageError naming the program and the searched folders.
std::vector<std::string> make_command(const std::string& program, const std::vector<std::string>& arguments,
                                      const ProgramKind& kind);

// Returns the path of `program`: unchanged if it has a slash, else found in PATH. Throws UsageError if there
// is no such file or it is not executable.
std::string find_program(const std::string& program);

// Splits text like a shell: blanks separate words; '...', "..." and \ quote. Throws UsageError naming `flag`
// for an unclosed quote or an empty command.
std::vector<std::string> split_words(std::string_view text, std::string_view flag);

}  // namespace rondo::launch
