#pragma once

#include <string>

namespace rondo::launch {

// A directory of this process that is removed with everything in it at the end. Move-only.
class ScratchDirectory {
 public:
  // In $TMPDIR or /tmp, with mode 0700. When none can be made (a full or read-only disk) the path is empty.
  static ScratchDirectory create();
  ScratchDirectory() = default;
  ScratchDirectory(ScratchDirectory&& other) noexcept;
  ScratchDirectory& operator=(ScratchDirectory&& other) noexcept;
  ~ScratchDirectory();

  const std::string& path() const { return path_; }

 private:
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Makes a directory "<prefix>XXXXXX" with a random end below `parent`, which is made when missing. Throws
// UsageError naming `flag` and the path.
std::string make_unique_directory(const std::string& parent, const std::string& prefix,
                                  const std::string& flag);

}  // namespace rondo::launch
