#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "rondo/base/bytes.h"

namespace rondo {

// How rondo opens every file that it reads: only regular files, found out on the open descriptor, without
// ever waiting for a named pipe's writer or a device.
class RegularFile {
 public:
  // Links are followed. Throws DataError naming the path and what it is instead.
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

// "a named pipe", "a device", for messages; `mode` as stat has it.
std::string kind_of_file(unsigned mode);

// The content of a regular file. Throws DataError when it cannot be read or is larger than `limit`.
std::string read_regular_file(const std::filesystem::path& path, Bytes limit = MiB(256));

// How rondo writes files. docs/security.md states the rule; every writer of every program is one of these
// two, or piece by piece OutputFile (rondo/format/file.h) and, of lines that a user asked for,
// AppendedOutput.

// A regular file that is written under a random name in the target's folder and takes the target's place in
// one step: readers see the old content or the new, never a part, and what is not committed leaves nothing
// behind. Not thread-safe.
class ReplacedFile {
 public:
  enum class Links {
    follow,  // what a user named: the link stays, the file that it leads to is replaced; a dangling one is
             // refused
    refuse,  // rondo's own names inside a run directory or checkpoint
  };

  // Throws Error when the target is no regular file, or one that may not be written.
  ReplacedFile(std::filesystem::path target, Links links);
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  // What it becomes, without links.
  const std::filesystem::path& target() const { return target_; }
  // Where to write: a name that did not exist a moment ago. Create it with O_EXCL.
  const std::filesystem::path& temporary() const { return temporary_; }
  // temporary(), complete and synced by its writer, becomes the target, with the permissions that the target
  // had.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  bool exists_ = false;
  bool committed_ = false;
};

// Writes the whole of what a user asked for to where the user said: a regular file in one step, as above with
// links followed; devices and named pipes as streams, with nothing renamed and nothing removed. Throws Error.
void write_output(const std::filesystem::path& target, std::string_view text);

// A file of rondo's own, in one step, to the disk. Throws Error when `path` is a link or no regular file.
void write_own_file(const std::filesystem::path& path, std::string_view text);

// Takes space for the bytes [offset, offset + length) of a file from its file system; the file's size stays
// as it is. Returns 0 or the error's number; what was taken before the error stays taken.
int take_file_space(int descriptor, std::size_t offset, std::size_t length);

}  // namespace rondo
