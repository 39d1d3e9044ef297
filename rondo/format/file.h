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
// and the reason; nothing is buffered in the process, so what write() accepted survives a kill of the
// process, and what sync() accepted survives a power cut. Not thread-safe.
class OutputFile {
 public:
  enum class Mode {
    create,    // must not exist yet
    truncate,  // emptied first
    append,    // every write() goes to the end, also when several processes write
  };

  // `shown` is the name in errors where that is not `path`: a temporary file's is nobody's concern.
  OutputFile(std::filesystem::path path, Mode mode, std::filesystem::path shown = {});
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  void write(std::span<const std::byte> data);
  void write(std::string_view text) { write(as_bytes(text)); }
  // Claims the space of the whole file, so that a full disk is noticed before hours of work are written to
  // it. File systems without that ability are left to notice later.
  void reserve(Bytes size);
  // To the disk.
  void sync();
  // Reports what the kernel could not write; the destructor cannot.
  void close();
  // Bytes written by this object.
  std::uint64_t written() const { return written_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void fail(int error_code) const;

  std::filesystem::path path_;
  std::filesystem::path shown_;
  int descriptor_ = -1;
  std::uint64_t written_ = 0;
  std::optional<std::uint64_t> flushed_;  // of a large file: so many bytes were handed to the disk
};

// A whole file mapped read-only into memory.
class MappedFile {
 public:
  enum class ReadAhead {
    all,   // the disk begins with all of it at once
    none,  // until read_ahead() is called
  };
  // Throws DataError when it cannot be opened.
  explicit MappedFile(std::filesystem::path path, ReadAhead ahead = ReadAhead::all);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Where not all is in memory yet, reads the file from its begin to its end, so that who looks at bytes()
  // behind it waits for no disk. Returns when all was read, soon after `stops` is set, or at an error, which
  // is met again by whoever looks at the bytes. Any thread, while others look at bytes().
  void read_ahead(const std::atomic<bool>& stops) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  bool is_in_memory() const;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The content of a file. Throws DataError when it cannot be read or is larger than `limit`.
std::string read_text_file(const std::filesystem::path& path, Bytes limit = MiB(256));

// Creates or replaces `path` in one atomic step: readers see the old content or the new, never a part.
void replace_text_file(const std::filesystem::path& path, std::string_view text);

// Makes renames and new names inside `directory` survive a power cut.
void sync_directory(const std::filesystem::path& directory);

}  // namespace rondo
