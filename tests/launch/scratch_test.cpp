#include "rondo/launch/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/temporary_directory.h"

namespace rondo::launch::scratch_test {
namespace {

namespace fs = std::filesystem;

// A folder that is TMPDIR for the lifetime of the object.
class ScratchFolder {
 public:
  ScratchFolder() {
    if (const char* const value = std::getenv("TMPDIR")) before_ = value;
    setenv("TMPDIR", path().c_str(), 1);
  }
  ~ScratchFolder() { before_ ? setenv("TMPDIR", before_->c_str(), 1) : unsetenv("TMPDIR"); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  fs::path path() const { return directory_.path(); }
  fs::path add_folder(const std::string& name) const {
    fs::create_directories(path() / name / "below");
    std::ofstream(path() / name / "below" / "file") << "x";
    return path() / name;
  }

 private:
  TemporaryDirectory directory_;
  std::optional<std::string> before_;
};

TEST(ScratchDirectory, LivesAsLongAsItsObject) {
  const ScratchFolder folder;
  fs::path path;
  {
    ScratchDirectory first = ScratchDirectory::create();
    path = first.path();
    EXPECT_EQ(path.parent_path(), folder.path());
    ScratchDirectory moved = std::move(first);
    std::ofstream(path / "file") << "x";
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(ScratchDirectory, WhatTheDeadLeftIsRemoved) {
  const ScratchFolder folder;
  const TemporaryDirectory outside;
  std::ofstream(outside.path() / "precious") << "x";
  const fs::path left = folder.add_folder("rondo-run-aZ09bc");
  fs::create_directory_symlink(outside.path(), left / "link");
  const ScratchDirectory own = ScratchDirectory::create();
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(own.path()));
  EXPECT_TRUE(fs::exists(outside.path() / "precious"));
}

TEST(ScratchDirectory, WhatTheLivingHaveIsLeft) {
  const ScratchFolder folder;
  const fs::path theirs = folder.add_folder("rondo-run-living");
  // A lock through another open of the directory, like that of another process.
  const Descriptor lock(open(theirs.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(flock(lock.number(), LOCK_EX | LOCK_NB), 0);
  const ScratchDirectory first = ScratchDirectory::create();
  const ScratchDirectory second = ScratchDirectory::create();
  EXPECT_TRUE(fs::exists(theirs / "below" / "file"));
  EXPECT_TRUE(fs::exists(first.path()));
  EXPECT_NE(first.path(), second.path());
}

TEST(ScratchDirectory, WhatIsNotRondosIsLeft) {
  const ScratchFolder folder;
  const TemporaryDirectory outside;
  std::ofstream(outside.path() / "precious") << "x";
  fs::create_directory_symlink(outside.path(), folder.path() / "rondo-run-linked");
  std::ofstream(folder.path() / "rondo-run-a_file") << "x";
  std::ofstream(folder.path() / "rondo-run-afile1") << "x";
  for (const char* name : {"rondo-run-longer0", "rondo-run-a.b.c.", "other-run-aZ09bc", "rondo-run-"})
    folder.add_folder(name);
  const auto count = [&] {
    return std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator());
  };
  const auto before = count();
  const ScratchDirectory own = ScratchDirectory::create();
  EXPECT_EQ(count(), before + 1);
  EXPECT_TRUE(fs::exists(outside.path() / "precious"));
}

TEST(ScratchDirectory, AnotherUsersIsLeft) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a folder of another user";
  const ScratchFolder folder;
  const fs::path theirs = folder.add_folder("rondo-run-theirs");
  ASSERT_EQ(chown(theirs.c_str(), 12345, 12345), 0);
  const ScratchDirectory own = ScratchDirectory::create();
  EXPECT_TRUE(fs::exists(theirs));
}

}  // namespace
}  // namespace rondo::launch::scratch_test
