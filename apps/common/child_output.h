#pragma once

#include <map>
#include <string>
#include <vector>

namespace rondo {

struct ChildOutput {
  int exit_code = 0;  // 128 + signal for a child that died of one
  std::string text;   // its standard output
};

// Runs a program to its end; standard error is ours. `environment` is added to ours. The program is killed
// when this process, or the thread that called, ends before it. Throws Error when it cannot be started.
ChildOutput run_child(const std::vector<std::string>& command,
                      const std::map<std::string, std::string>& environment = {});

// What exec and posix_spawn want of command lines and environments.

// The addresses of the texts and a null at the end, as long as `texts` lives unchanged.
std::vector<char*> exec_words(std::vector<std::string>& texts);

// This process's environment with the variables of `added` in place of its own, as NAME=VALUE.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& added);

}  // namespace rondo
