#pragma once

#include <filesystem>
#include <string_view>

namespace rondo {

// What a user asked for and what comes line by line, with the same rule as write_output() (docs/security.md):
// a regular file, to which links are followed, grows at its end; a device or a named pipe is a stream, which
// is written and nothing else. A link to nowhere, a directory and a socket are refused. Nothing is buffered.
// Not thread-safe.
class AppendedOutput {
 public:
  // Makes the file where there is none. A named pipe waits for its reader. Throws Error.
  explicit AppendedOutput(const std::filesystem::path& path);
  ~AppendedOutput();
  AppendedOutput(const AppendedOutput&) = delete;
  AppendedOutput& operator=(const AppendedOutput&) = delete;

  bool is_stream() const { return is_stream_; }
  // Of a regular file its own name, without links.
  const std::filesystem::path& target() const { return target_; }
  // Puts `text` in place of all that a regular file has, in one step; write() goes on behind it. Throws
  // Error.
  void replace(std::string_view text);
  // Throws Error naming the path. A pipe whose reader has left wants no more: that is no failure.
  void write(std::string_view text);

 private:
  void open();

  std::filesystem::path named_;   // as the user said it
  std::filesystem::path target_;  // without links, of a regular file
  bool is_stream_ = false;
  int descriptor_ = -1;
};

}  // namespace rondo
