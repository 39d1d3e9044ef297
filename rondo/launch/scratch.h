#pragma once

#include <string>

#include "rondo/launch/descriptor.h"

namespace rondo::launch {

// A directory of this process that is removed with everything in it at the end. Move-only.
//
// This process and those it forks hold a lock on it while they live. What a killed process left behind is
// therefore known by its lock being free, and the next create() removes it: no pid is looked at, which
// another process may have by then.
class ScratchDirectory {
 public:
  // "rondo-run-XXXXXX" in $TMPDIR or /tmp, with mode 0700. When none can be made (a full or read-only disk)
  // the path is empty.
  static ScratchDirectory create();
  // The same in this host's memory, in /dev/shm.
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

// Makes a directory "<prefix>XXXXXX" with a random end below `parent`, which is made when missing. Throws
// UsageError naming `flag` and the path.
std::string make_unique_directory(const std::string& parent, const std::string& prefix,
                                  const std::string& flag);

}  // namespace rondo::launch
