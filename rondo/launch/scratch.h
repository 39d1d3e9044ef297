#pragma once

#include <string>

#include "rondo/launch/descriptor.h"

namespace rondo::launch {

// A temporary directory that is removed with its content by the destructor. Move-only.
//
// This process and its forked children hold a lock on the directory while they live. A directory with a free
// lock was therefore left behind by killed processes, and the next create() removes it. Pids are not used,
// because the kernel reuses them.
class ScratchDirectory {
 public:
  // Creates "rondo-run-XXXXXX" in $TMPDIR or /tmp, with mode 0700. The path is empty if that fails (a full or
  // read-only disk).
  static ScratchDirectory create();
  // Creates the directory in this host's memory, in /dev/shm.
  static ScratchDirectory create_in_memory();
  ScratchDirectory() = default;
  ScratchDirectory(ScratchDirectory&& other) noexcept;
  ScratchDirectory& operator=(ScratchDirectory&& other) noexcept;
  ~ScratchDirectory();

  const std::string& path() const { return path_; }

 private:
  ScratchDirectory(std::string path, Descriptor lock);
  static ScratchDirectory create_in(const std::string& parent);
  std::string path_;
  Descriptor lock_;
};

// Creates a directory "<prefix>XXXXXX" with a random suffix in `parent`, which is created if missing. Throws
// UsageError naming `flag` and the path.
std::string make_unique_directory(const std::string& parent, const std::string& prefix,
                                  const std::string& flag);

}  // namespace rondo::launch
