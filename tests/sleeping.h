#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>

namespace rondo::tests {

// Returns whether a thread of any process sleeps in the kernel; of a process's number, its first thread.
inline bool is_sleeping(pid_t thread) {
  std::ifstream file("/proc/" + std::to_string(thread) + "/stat");
  std::string stat;
  std::getline(file, stat);
  // The state follows the name, which is in parentheses and may contain any character.
  return stat.find(") S ", stat.rfind(')')) != std::string::npos;
}

}  // namespace rondo::tests
