#pragma once

#include <exception>
#include <string>

namespace rondo {

// Returns the text of a failure of libtorch's engine or store as a part of a message: one line of ASCII
// without the stack and the place in its source.
std::string engine_reason(const std::exception& error);

// Keeps libtorch's warnings and errors off standard error while one lives, on all threads of the process:
// c10d and Gloo write a C++ stack there for each failure, which rondo reports in words of its own. A level
// that the user sets with TORCH_CPP_LOG_LEVEL stays. Any thread; several may live at a time.
class QuietLog {
 public:
  QuietLog();
  ~QuietLog();
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;
};

}  // namespace rondo
