#pragma once

#include <map>
#include <string>
#include <vector>

namespace rondo {

struct ChildOutput {
  int exit_code = 0;  // 128 + signal if a signal killed the child
  std::string text;   // standard output of the child
};

// Runs a program to its end. It inherits standard error, and `environment` is added to this process's
// environment. The program is killed when this process, or the calling thread, ends first. Throws Error if it
// cannot be started.
ChildOutput run_child(const std::vector<std::string>& command,
                      const std::map<std::string, std::string>& environment = {});

// Arguments for exec and posix_spawn.

// Returns the addresses of the texts and a final null; valid as long as `texts` is unchanged.
std::vector<char*> exec_words(std::vector<std::string>& texts);

// Returns this process's environment as NAME=VALUE, with the variables of `added` replacing its own.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& added);

}  // namespace rondo
