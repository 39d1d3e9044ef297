#include <gtest/gtest.h>

#include "rondo/format/file.h"
#include "rondo/format/git_commit.h"
#include "tests/temporary_directory.h"

namespace rondo::git_commit_test {
namespace {

namespace fs = std::filesystem;
const std::string kFirst(40, 'a');
const std::string kSecond = std::string(39, 'b') + "7";

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  write_all(path, text);
}

TEST(GitCommit, FollowsBranches) {
  const TemporaryDirectory directory;
  const fs::path git = directory / ".git";
  write(git / "HEAD", "ref: refs/heads/main\n");
  fs::create_directories(directory / "deep" / "down");
  EXPECT_EQ(git_commit(directory / "deep" / "down"), "") << "before the first commit";
  write(git / "packed-refs", "# pack-refs with: peeled\n" + kFirst + " refs/heads/main\n");
  EXPECT_EQ(git_commit(directory / "deep" / "down"), kFirst);
  write(git / "refs" / "heads" / "main", kSecond + "\n");
  EXPECT_EQ(git_commit(directory.path()), kSecond);
  write(git / "HEAD", kFirst + "\n");
  EXPECT_EQ(git_commit(directory.path()), kFirst) << "a detached head";
}

TEST(GitCommit, OfAWorktree) {
  const TemporaryDirectory directory;
  const fs::path git = directory / "main" / ".git";
  write(git / "refs" / "heads" / "side", kSecond + "\n");
  write(git / "worktrees" / "side" / "HEAD", "ref: refs/heads/side\n");
  write(git / "worktrees" / "side" / "commondir", "../..\n");
  write(directory / "side" / ".git", "gitdir: " + (git / "worktrees" / "side").string() + "\n");
  EXPECT_EQ(git_commit(directory / "side"), kSecond);
}

TEST(GitCommit, DamagedFilesHaveNone) {
  const TemporaryDirectory directory;
  const fs::path git = directory / ".git";
  for (const std::string head :
       {"", "ref: refs/heads/../../../etc/passwd\n", "ref: HEAD\n", "not a commit\n"}) {
    write(git / "HEAD", head);
    EXPECT_EQ(git_commit(directory.path()), "") << head;
  }
}

}  // namespace
}  // namespace rondo::git_commit_test
