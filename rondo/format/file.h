#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rondo/base/bytes.h"

namespace rondo {

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A file being written. Every failure (no space, quota, I/O error) throws Error naming the file, the offset
// and the reason. Unbuffered: data accepted by write() survives a kill of the process, and data accepted by
// sync() survives a power failure. Not thread-safe.
class OutputFile {
 public:
  enum class Mode {
    create,    // must not exist
    truncate,  // is emptied first
    append,    // every write() appends, even if several processes write
  };

  // `shown` replaces `path` in errors, for example for temporary files.
  OutputFile(std::filesystem::path path, Mode mode, std::filesystem::path shown = {});
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  void write(std::span<const std::byte> data);
  void write(std::string_view text) { write(as_bytes(text)); }
  // Reserves disk space for the whole file, so that a full disk is detected before the file is written. Does
  // nothing on file systems without support.
  void reserve(Bytes size);
  // Syncs the file to disk.
  void sync();
  // Closes the file and reports write errors of the kernel, which the destructor cannot report.
  void close();
  // Returns the number of bytes written by this object.
  std::uint64_t written() const { return written_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void fail(int error_code) const;

  std::filesystem::path path_;
  std::filesystem::path shown_;
  int descriptor_ = -1;
  std::uint64_t written_ = 0;
  std::optional<std::uint64_t> flushed_;  // for a large file: number of bytes passed to the disk
};

// A file mapped read-only into memory.
class MappedFile {
 public:
  enum class ReadAhead {
    all,   // start reading the whole file immediately
    none,  // wait for read_ahead()
  };
  // Throws DataError if it cannot be opened.
  explicit MappedFile(std::filesystem::path path, ReadAhead ahead = ReadAhead::all);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Reads the file from begin to end unless it is already in memory, so that a following reader of bytes()
  // need not wait for the disk. Returns when everything is read, soon after `stops` is set, or at an error,
  // which the reader of the bytes will encounter again. Thread-safe, also while others read bytes().
  void read_ahead(const std::atomic<bool>& stops) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  bool is_in_memory() const;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Returns the content of a file. Throws DataError if it cannot be read or is larger than `limit`.
std::string read_text_file(const std::filesystem::path& path, Bytes limit = MiB(256));

// Creates or replaces `path` atomically: readers see the old or the new content, never a part.
void replace_text_file(const std::filesystem::path& path, std::string_view text);

// Makes renames and new names inside `directory` durable across a power failure.
void sync_directory(const std::filesystem::path& directory);

}  // namespace rondo
