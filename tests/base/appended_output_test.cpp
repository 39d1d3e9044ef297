#include "rondo/base/appended_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "tests/temporary_directory.h"

namespace rondo::appended_output_test {
namespace {

namespace fs = std::filesystem;

std::string error_of(const fs::path& path) {
  try {
    AppendedOutput(path).write("x");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(AppendedOutput, GrowsAFileAndFollowsAUsersLink) {
  const TemporaryDirectory directory;
  write_output(directory / "file", "old\n");
  fs::create_symlink("file", directory / "link");
  AppendedOutput output(directory / "link");
  EXPECT_FALSE(output.is_stream());
  EXPECT_EQ(output.target(), fs::canonical(directory / "file"));
  output.write("new\n");
  EXPECT_EQ(read_regular_file(directory / "file"), "old\nnew\n");
  output.replace("kept\n");
  output.write("next\n");
  EXPECT_EQ(read_regular_file(directory / "file"), "kept\nnext\n");
  EXPECT_TRUE(fs::is_symlink(directory / "link"));
  AppendedOutput(directory / "fresh").write("first\n");
  EXPECT_EQ(read_regular_file(directory / "fresh"), "first\n");
}

TEST(AppendedOutput, RefusesWhatIsNoOutput) {
  const TemporaryDirectory directory;
  fs::create_symlink("nowhere", directory / "dangling");
  EXPECT_NE(error_of(directory / "dangling").find("dangling"), std::string::npos);
  EXPECT_FALSE(fs::exists(directory / "nowhere"));
  EXPECT_NE(error_of(directory.path()).find(directory.path().string()), std::string::npos);
  EXPECT_NE(error_of(directory / "missing/file").find("missing"), std::string::npos);
  EXPECT_NE(error_of("/dev/full").find("/dev/full"), std::string::npos);
  EXPECT_EQ(error_of("/dev/null"), "");
}

TEST(AppendedOutput, WritesToPipeWhileItIsRead) {
  const TemporaryDirectory directory;
  const fs::path pipe = directory / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  AppendedOutput output(pipe);
  EXPECT_TRUE(output.is_stream());
  output.write("one\n");
  output.write("two\n");
  std::array<char, 16> text{};
  EXPECT_EQ(::read(reader, text.data(), text.size()), 8);
  EXPECT_EQ(std::string(text.data(), 8), "one\ntwo\n");
  ::close(reader);
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  output.write("three\n");
  std::signal(SIGPIPE, before);
  EXPECT_TRUE(fs::is_fifo(pipe));
}

}  // namespace
}  // namespace rondo::appended_output_test
