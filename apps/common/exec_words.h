#pragma once

#include <map>
#include <string>
#include <vector>

namespace rondo {

// What exec and posix_spawn want of command lines and environments.

// The addresses of the texts and a null at the end, as long as `texts` lives unchanged.
std::vector<char*> exec_words(std::vector<std::string>& texts);

// This process's environment with the variables of `added` in place of its own, as NAME=VALUE.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& added);

}  // namespace rondo
