#pragma once

#include <filesystem>
#include <string_view>

namespace rondo {

// An output file that the user named and that grows line by line. Follows the same rule as write_output()
// (docs/security.md): a regular file is appended to, and links to it are followed; a device or a named pipe
// is only written to. Dangling links, directories and sockets are refused. Unbuffered. Not thread-safe.
class AppendedOutput {
 public:
  // Opens `path` and creates the file if it is missing. Blocks until a named pipe has a reader. Throws Error.
  explicit AppendedOutput(const std::filesystem::path& path);
  ~AppendedOutput();
  AppendedOutput(const AppendedOutput&) = delete;
  AppendedOutput& operator=(const AppendedOutput&) = delete;

  bool is_stream() const { return is_stream_; }
  // Returns the path of a regular file after links are resolved; for a stream, the path as given.
  const std::filesystem::path& target() const { return target_; }
  // Replaces the whole content of a regular file atomically; later write() calls append after `text`. Throws
  // Error.
  void replace(std::string_view text);
  // Appends `text`. Ignores a pipe whose reader has closed it. Throws Error naming the path.
  void write(std::string_view text);

 private:
  void open();

  std::filesystem::path named_;   // the path as the user gave it
  std::filesystem::path target_;  // for a regular file, the path after links are resolved
  bool is_stream_ = false;
  int descriptor_ = -1;
};

}  // namespace rondo
