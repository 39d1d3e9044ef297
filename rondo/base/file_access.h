#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "rondo/base/bytes.h"

namespace rondo {

// A regular file opened for reading; rondo opens every input file with it. The type is checked on the open
// descriptor, so opening never blocks on a named pipe or a device.
class RegularFile {
 public:
  // Opens `path`, following links. Throws DataError naming the path and the actual file type.
  explicit RegularFile(std::filesystem::path path);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::size_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
};

// Returns the file type of a stat `mode` for messages: "a named pipe", "a device".
std::string kind_of_file(unsigned mode);

// Returns whether two descriptors refer to the same file, for example the same terminal.
bool is_same_file(int one, int other);

// Returns whether the path still names the opened file or directory, without following a link: another
// process may have removed or replaced it.
bool is_still_at(int descriptor, const std::filesystem::path& path);

// Returns the content of a regular file. Throws DataError if it cannot be read or is larger than `limit`.
std::string read_regular_file(const std::filesystem::path& path, Bytes limit = MiB(256));

// Functions that write whole files. docs/security.md states the rule. All programs write files with these two
// functions, with OutputFile (rondo/format/file.h) piece by piece, or with AppendedOutput line by line.

// A regular file that is written under a random name in the target's folder and then renamed to the target.
// Readers see either the old or the new content, never a part. Without commit() nothing is left behind. Not
// thread-safe.
class ReplacedFile {
 public:
  enum class Links {
    // for a user's path: keeps the link and replaces the file that it points to; refuses dangling links
    follow,
    refuse,  // for rondo's own files inside a run directory or checkpoint
  };

  // Throws Error if the target is not a regular file or is not writable.
  ReplacedFile(std::filesystem::path target, Links links);
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  // Returns the final path, after links are resolved.
  const std::filesystem::path& target() const { return target_; }
  // Returns the path to write to. The file does not exist yet: create it with O_EXCL.
  const std::filesystem::path& temporary() const { return temporary_; }
  // Renames temporary() to the target, with the previous target's permissions. The caller has written and
  // synced it.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool exists_ = false;
  bool committed_ = false;
};

// Writes `text` to a path that the user named. Replaces a regular file atomically, following links. Writes to
// devices and named pipes directly, without renaming or removing them. Throws Error.
void write_output(const std::filesystem::path& target, std::string_view text);

// Writes one of rondo's own files atomically and syncs it. Throws Error if `path` is a link or not a regular
// file.
void write_own_file(const std::filesystem::path& path, std::string_view text);

// Reserves disk space for the bytes [offset, offset + length) of a file without changing its size. Returns 0
// or errno. After an error, the space reserved so far stays reserved.
int take_file_space(int descriptor, std::size_t offset, std::size_t length);

}  // namespace rondo
