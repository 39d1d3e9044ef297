#include "rondo/base/file_access.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "rondo/base/error.h"
#include "tests/temporary_directory.h"

namespace rondo::output_test {
namespace {

namespace fs = std::filesystem;

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Output, ReplacesAFileAndLeavesNothingElse) {
  const TemporaryDirectory directory;
  const fs::path path = directory / "file";
  write_output(path, "one");
  EXPECT_EQ(read_all(path), "one");
  ::chmod(path.c_str(), 0640);
  write_output(path, "two");
  EXPECT_EQ(read_all(path), "two");
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0640U);
  EXPECT_EQ(entries(directory.path()), 1U);
}

TEST(Output, FollowsUserLinksButNotOwnOnes) {
  const TemporaryDirectory directory;
  write_all(directory / "target", "old");
  fs::create_symlink("target", directory / "link");
  write_output(directory / "link", "new");
  EXPECT_TRUE(fs::is_symlink(directory / "link"));
  EXPECT_EQ(read_all(directory / "target"), "new");
  EXPECT_NE(error_of([&] { write_own_file(directory / "link", "x"); }).find("link"), std::string::npos);
  EXPECT_EQ(read_all(directory / "target"), "new");
  fs::create_symlink("nowhere", directory / "dangling");
  EXPECT_NE(error_of([&] { write_output(directory / "dangling", "x"); }).find("dangling"), std::string::npos);
  EXPECT_FALSE(fs::exists(directory / "nowhere"));
}

TEST(Output, RefusesWhatIsNoFile) {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "folder");
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_NE(error_of([&] { write_output(directory / "folder", "x"); }).find("directory"), std::string::npos);
  EXPECT_NE(error_of([&] { write_output((directory / "folder").string() + "/", "x"); }).find("directory"),
            std::string::npos);
  EXPECT_NE(error_of([&] { write_own_file(directory / "pipe", "x"); }).find("named pipe"), std::string::npos);
  EXPECT_NE(error_of([&] { write_output(directory / "missing/file", "x"); }).find("missing"),
            std::string::npos);
  EXPECT_NE(error_of([&] { write_output("/dev/full", "x"); }).find("/dev/full"), std::string::npos);
  write_output("/dev/null", "x");
}

TEST(Output, WhatIsNotCommittedLeavesNothing) {
  const TemporaryDirectory directory;
  write_all(directory / "file", "old");
  {
    const ReplacedFile file(directory / "file", ReplacedFile::Links::follow);
    write_all(file.temporary(), "half");
    EXPECT_EQ(entries(directory.path()), 2U);
  }
  EXPECT_EQ(entries(directory.path()), 1U);
  EXPECT_EQ(read_all(directory / "file"), "old");
  // A file that appears meanwhile is not overwritten, because it was not checked.
  ReplacedFile file(directory / "fresh", ReplacedFile::Links::follow);
  write_all(file.temporary(), "ours");
  write_all(directory / "fresh", "somebody's");
  EXPECT_NE(error_of([&] { file.commit(); }), "");
  EXPECT_EQ(read_all(directory / "fresh"), "somebody's");
}

TEST(RegularFile, OpensNothingElse) {
  const TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  write_all(directory / "file", std::string(10'000, 'x'));
  fs::create_symlink("file", directory / "link");
  EXPECT_EQ(read_regular_file(directory / "link").size(), 10'000U);
  EXPECT_FALSE(read_regular_file("/proc/self/status").empty());  // reports size 0
  const std::pair<fs::path, const char*> others[] = {{directory / "pipe", "named pipe"},
                                                     {directory.path(), "directory"},
                                                     {"/dev/zero", "device"},
                                                     {directory / "no", "no"}};
  for (const auto& [path, what] : others) {
    const std::string error = error_of([&file = path] { read_regular_file(file); });
    EXPECT_NE(error.find(path.string()), std::string::npos) << error;
    EXPECT_NE(error.find(what), std::string::npos) << error;
  }
  EXPECT_NE(error_of([&] { read_regular_file(directory / "file", Bytes{9999}); }), "");
}

}  // namespace
}  // namespace rondo::output_test
