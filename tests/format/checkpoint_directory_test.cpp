#include "rondo/format/checkpoint_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <functional>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/format/checkpoint_files.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::checkpoint_directory_test {
namespace {

namespace fs = std::filesystem;

// Saves a checkpoint of two tensors of `elements` floats, all equal to `step`, and a text file.
fs::path save(const fs::path& root, std::int64_t step, int keep = 3, std::int64_t elements = 4) {
  CheckpointWriter writer(root, step);
  SafetensorsWriter tensors = writer.open_tensors(
      "model.safetensors", {{"a", Dtype::float32, {elements}}, {"b", Dtype::float32, {elements}}});
  const std::vector<float> values(static_cast<std::size_t>(elements), static_cast<float>(step));
  tensors.write("a", std::as_bytes(std::span(values)));
  tensors.write("b", std::as_bytes(std::span(values)));
  writer.add(tensors.finish());
  writer.write_text("state.json", str("{\"step\":", step, "}\n"));
  return writer.commit(keep);
}

std::vector<std::int64_t> steps(const fs::path& root) {
  std::vector<std::int64_t> result;
  for (const CheckpointEntry& entry : list_checkpoints(root)) result.push_back(entry.step);
  return result;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(CheckpointDirectory, CommitsAndKeepsTheNewest) {
  const TemporaryDirectory directory;
  const fs::path root = directory / "deep/checkpoints";
  EXPECT_FALSE(newest_checkpoint(root));
  for (const std::int64_t step : {10, 20, 30, 40}) save(root, step, 2);
  EXPECT_EQ(steps(root), (std::vector<std::int64_t>{30, 40}));
  EXPECT_EQ(names_in(root), (std::vector<std::string>{"step-00000030", "step-00000040"}));
  EXPECT_EQ(newest_checkpoint(root)->step, 40);
  EXPECT_TRUE(verify_checkpoint(newest_checkpoint(root)->path).empty());
}

TEST(CheckpointDirectory, TheSameStepAgainReplacesTheOldOne) {
  const TemporaryDirectory directory;
  save(directory.path(), 5, 2, 4);
  const fs::path path = save(directory.path(), 5, 2, 9);
  EXPECT_EQ(SafetensorsFile(path / "model.safetensors").find("a")->shape[0], 9);
  EXPECT_EQ(names_in(directory.path()), (std::vector<std::string>{"step-00000005"}));
}

TEST(CheckpointDirectory, IncompleteOnesAreNotListed) {
  const TemporaryDirectory directory;
  save(directory.path(), 1);
  fs::remove(save(directory.path(), 2) / "manifest.json");
  fs::remove(save(directory.path(), 3) / "state.json");
  fs::resize_file(save(directory.path(), 4) / "model.safetensors", 20);
  fs::create_directory(directory / "step-00000009");
  fs::create_directory(directory / "step-10");
  fs::rename(save(directory.path(), 5), directory / "step-00000007");
  EXPECT_EQ(steps(directory.path()), std::vector<std::int64_t>{1});
}

// A run that continues from an older checkpoint never deletes its own new checkpoints.
TEST(CheckpointDirectory, PruningCountsUpToTheWrittenStep) {
  const TemporaryDirectory directory;
  for (const std::int64_t step : {2, 4, 10}) save(directory.path(), step, 3);
  save(directory.path(), 5, 1);
  EXPECT_EQ(names_in(directory.path()), (std::vector<std::string>{"step-00000005", "step-00000010"}));
  // Damaged ones do not count as kept, and are deleted with the older ones.
  fs::resize_file(save(directory.path(), 6, 2) / "model.safetensors", 20);
  save(directory.path(), 7, 2);
  EXPECT_EQ(names_in(directory.path()),
            (std::vector<std::string>{"step-00000005", "step-00000006", "step-00000007", "step-00000010"}));
  save(directory.path(), 8, 2);
  EXPECT_EQ(names_in(directory.path()),
            (std::vector<std::string>{"step-00000007", "step-00000008", "step-00000010"}));
}

TEST(CheckpointDirectory, OneThatIsRemovedLeavesNothing) {
  const TemporaryDirectory directory;
  for (const std::int64_t step : {2, 4}) save(directory.path(), step, 3);
  remove_checkpoint(directory / "step-00000004");
  EXPECT_EQ(names_in(directory.path()), (std::vector<std::string>{"step-00000002"}));
}

TEST(CheckpointDirectory, SelectsNewestAndNamesIntactOne) {
  const TemporaryDirectory directory;
  const fs::path intact = save(directory / "checkpoints", 1);
  const fs::path flipped = save(directory / "checkpoints", 2);
  const fs::path truncated = save(directory / "checkpoints", 3);
  std::string text = read_all(flipped / "state.json");
  text[0] ^= 1;
  write_all(flipped / "state.json", text);
  fs::resize_file(truncated / "model.safetensors", 20);
  EXPECT_EQ(find_checkpoint(directory.path()), truncated);
  for (const fs::path& path : {directory.path(), truncated, flipped, truncated / "", flipped / ""}) {
    const std::string said = testing::message_of<DataError>([&] { open_checkpoint(path); });
    EXPECT_NE(said.find(path == flipped || path == flipped / "" ? "state.json" : "model.safetensors"),
              std::string::npos)
        << said;
    EXPECT_NE(said.find("--resume " + intact.string()), std::string::npos) << said;
    EXPECT_NE(said.find("--resume-intact"), std::string::npos) << said;
  }
  EXPECT_EQ(open_checkpoint(intact), intact);
  const IntactCheckpoint found = newest_intact_checkpoint(directory / "checkpoints");
  EXPECT_EQ(found.newest->step, 1);
  ASSERT_EQ(found.skipped_checkpoints.size(), 2U);
  EXPECT_EQ(found.skipped_checkpoints[0].entry.step, 3);
  EXPECT_EQ(found.skipped_checkpoints[1].entry.step, 2);
  // A single file of a checkpoint is checked like the checkpoint.
  EXPECT_THROW(require_intact_if_of_checkpoint(flipped / "model.safetensors"), DataError);
  require_intact_if_of_checkpoint(intact / "model.safetensors");
  write_all(directory / "own.safetensors", "anything");
  require_intact_if_of_checkpoint(directory / "own.safetensors");
  // No intact checkpoint is left.
  fs::remove(intact / "manifest.json");
  EXPECT_NE(testing::message_of<DataError>([&] {
              open_checkpoint(directory.path());
            }).find("no checkpoint beside it is intact"),
            std::string::npos);
  fs::create_directory(directory / "checkpoints" / "step-00000004");
  EXPECT_NE(testing::message_of<DataError>([&] { open_checkpoint(directory.path()); }).find("manifest.json"),
            std::string::npos);
}

TEST(CheckpointDirectory, AnotherStepsNameIsDamage) {
  const TemporaryDirectory directory;
  fs::rename(save(directory.path(), 5), directory / "step-00000007");
  EXPECT_EQ(verify_checkpoint(directory / "step-00000007").at(0).file, "manifest.json");
}

TEST(CheckpointDirectory, AnUncommittedOneLeavesNothing) {
  const TemporaryDirectory directory;
  {
    CheckpointWriter writer(directory.path(), 1);
    writer.write_text("state.json", "{}");
    EXPECT_EQ(names_in(directory.path()).size(), 1U);
  }
  EXPECT_TRUE(names_in(directory.path()).empty());
}

TEST(CheckpointDirectory, RemovesWhatDeadWritersLeftAndNothingElse) {
  const TemporaryDirectory directory;
  fs::create_directories(directory / ".tmp-step-00000001-dead/x");
  fs::create_directories(directory / "mine");
  CheckpointWriter alive(directory.path(), 2);
  EXPECT_EQ(remove_abandoned_checkpoints(directory.path()), 1);
  alive.write_text("state.json", "{}");
  alive.commit(1);
  EXPECT_EQ(names_in(directory.path()), (std::vector<std::string>{"mine", "step-00000002"}));
  EXPECT_EQ(remove_abandoned_checkpoints(directory / "missing"), 0);
}

TEST(CheckpointDirectory, FindsACheckpointFromARunDirectory) {
  const TemporaryDirectory directory;
  const fs::path checkpoint = save(directory / "run/checkpoints", 7);
  EXPECT_EQ(find_checkpoint(directory / "run"), checkpoint);
  EXPECT_EQ(find_checkpoint(directory / "run/checkpoints"), checkpoint);
  EXPECT_EQ(find_checkpoint(checkpoint), checkpoint);
  fs::create_directory(directory / "empty");
  EXPECT_THROW(find_checkpoint(directory / "empty"), DataError);
  EXPECT_THROW(find_checkpoint(directory / "missing"), DataError);
}

TEST(CheckpointDirectory, EveryFlippedBitIsDetected) {
  const TemporaryDirectory directory("/dev/shm");  // ten thousand rewrites of a file are slow on a disk
  const fs::path checkpoint = save(directory.path(), 12);
  ASSERT_TRUE(verify_checkpoint(checkpoint).empty());
  for (const std::string& name : names_in(checkpoint)) {
    const std::string good = read_all(checkpoint / name);
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      write_all(checkpoint / name, bad);
      const std::vector<Damage> damage = verify_checkpoint(checkpoint);
      ASSERT_FALSE(damage.empty()) << name << " bit " << bit;
      ASSERT_EQ(damage[0].file, name) << "bit " << bit;
    }
    write_all(checkpoint / name, good);
  }
  EXPECT_TRUE(verify_checkpoint(checkpoint).empty());
}

TEST(CheckpointDirectory, DamageNamesTheTensor) {
  const TemporaryDirectory directory;
  const fs::path checkpoint = save(directory.path(), 12);
  std::string content = read_all(checkpoint / "model.safetensors");
  content.back() ^= 1;
  write_all(checkpoint / "model.safetensors", content);
  write_all(checkpoint / "stray.txt", "x");
  const std::vector<Damage> damage = verify_checkpoint(checkpoint);
  ASSERT_EQ(damage.size(), 2U);
  EXPECT_EQ(damage[0].tensor, "b");
  EXPECT_EQ(damage[1].file, "stray.txt");
}

TEST(CheckpointDirectory, AManifestCannotPointOutside) {
  const TemporaryDirectory directory;
  Manifest manifest{1, {{"../secret", 0, std::string(32, '0'), {}}}};
  EXPECT_THROW(parse_manifest(to_text(manifest), "manifest.json"), DataError);
}

// Runs `body` in a child process. Returns its exit status, or the negative signal number.
int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Saves a checkpoint that is too big for its file system, and checks the remaining files. Output is for
// debugging.
int save_must_fail(const fs::path& root, const std::string& reason) {
  const auto failed = [](const std::string& why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 1;
  };
  try {
    save(root, 1, 1, 100);
    save(root, 2, 1, 1 << 20);
    return failed("the save succeeded");
  } catch (const Error& e) {
    if (std::string(e.what()).find(reason) == std::string::npos) return failed(e.what());
  }
  if (names_in(root) != std::vector<std::string>{"step-00000001"})
    return failed("left over: " + join(names_in(root), " "));
  return verify_checkpoint(root / "step-00000001").empty() ? 0 : failed("the previous checkpoint is damaged");
}

TEST(CheckpointDirectory, FullDiskIsOneErrorAndKeepsPrevious) {
  const TemporaryDirectory directory;
  constexpr int cannot_mount = 77;
  const int result = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return cannot_mount;
    if (::mount("none", directory.path().c_str(), "tmpfs", 0, "size=2m") != 0) return cannot_mount;
    return save_must_fail(directory / "checkpoints", "No space left on device");
  });
  if (result == cannot_mount) {
    GTEST_SKIP()
        << "this machine lets nobody mount a small tmpfs; the file size limit below covers the same path";
  }
  EXPECT_EQ(result, 0);
}

// As on file systems that cannot rename directories.
TEST(CheckpointDirectory, FailedRenameIsOneErrorAndKeepsPrevious) {
  const TemporaryDirectory directory;
  save(directory.path(), 1, 1);
  // no rename replaces a file with a directory
  OutputFile(directory / checkpoint_name(2), OutputFile::Mode::create).close();
  testing::expect_facts(testing::message_of<Error>([&] { save(directory.path(), 2, 1); }), {"step-00000002"});
  EXPECT_EQ(names_in(directory.path()), (std::vector<std::string>{checkpoint_name(1), checkpoint_name(2)}));
  EXPECT_EQ(steps(directory.path()), std::vector<std::int64_t>{1});
  EXPECT_TRUE(verify_checkpoint(directory / checkpoint_name(1)).empty());
}

TEST(CheckpointDirectory, FileSizeLimitKeepsPreviousCheckpoint) {
  const TemporaryDirectory directory;
  EXPECT_EQ(in_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{1 << 20, 1 << 20};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              return save_must_fail(directory / "checkpoints", "File too large");
            }),
            0);
}

// Like save(), with a file that is linked to the previous checkpoint if there is one.
fs::path save_linked(const fs::path& root, std::int64_t step, int keep) {
  const std::vector<float> frozen(100000, 1), trained(100000, static_cast<float>(step));
  const auto older = newest_checkpoint(root);
  CheckpointWriter writer(root, step);
  const auto write = [&](const std::string& name, const std::vector<float>& values) {
    SafetensorsWriter tensors = writer.open_tensors(name, {{"t", Dtype::float32, {100000}}});
    tensors.write("t", std::as_bytes(std::span(values)));
    writer.finish(tensors);
  };
  write("trained.safetensors", trained);
  bool is_linked = false;
  if (older) {
    for (const FileRecord& file : read_manifest(older->path).files) {
      if (file.name == "frozen.safetensors") is_linked = writer.link(older->path / file.name, file);
    }
  }
  if (!is_linked) write("frozen.safetensors", frozen);
  writer.write_text("state.json", str("{\"step\":", step, "}\n"));
  return writer.commit(keep);
}

// A child saves steps 1, 2, 3, ... and reports each one after commit() has returned. It is killed at a random
// time. `make survive` runs 500 kills. Uses memory instead of a disk: a kill loses no data that the kernel
// has, and 20 times as many rounds fit in a second.
TEST(CheckpointDirectory, SurvivesKillAtAnyMoment) {
  const TemporaryDirectory directory("/dev/shm");
  const fs::path root = directory / "checkpoints";
  RandomStream random(7);
  std::int64_t committed = 0;
  const char* const wanted = std::getenv("RONDO_SURVIVE_KILLS");
  const int rounds = wanted != nullptr ? std::atoi(wanted) : 40;
  for (int round = 0; round < rounds; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (std::int64_t step = committed + 1;; ++step) {
        if (round % 2 == 0) {
          save_linked(root, step, 1);
          save_linked(root, step, 1);  // replaced by an equal one, as after a resume from an older checkpoint
        } else {
          save(root, step, 1, 20000);
          save(root, step, 1, 20000);
        }
        if (::write(ends[1], &step, sizeof step) != sizeof step) ::_exit(1);
      }
    }
    ::close(ends[1]);
    // The first commit of a round always completes; the kill happens at any time in the next saves.
    ASSERT_EQ(::read(ends[0], &committed, sizeof committed), static_cast<ssize_t>(sizeof committed));
    const timespec moment{0, static_cast<long>(random.below(8'000'000))};
    ::ppoll(nullptr, 0, &moment, nullptr);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    while (::read(ends[0], &committed, sizeof committed) == static_cast<ssize_t>(sizeof committed)) continue;
    ::close(ends[0]);

    const auto newest = newest_checkpoint(root);
    ASSERT_TRUE(newest) << "round " << round;
    ASSERT_GE(newest->step, committed);
    ASSERT_LE(newest->step, committed + 1);
    ASSERT_TRUE(verify_checkpoint(newest->path).empty());
    committed = newest->step;
    remove_abandoned_checkpoints(root);
    for (const std::string& name : names_in(root)) ASSERT_TRUE(name.starts_with("step-")) << name;
  }
  std::printf("kills in a save: %d, each time the newest checkpoint was intact\n", rounds);
}

}  // namespace
}  // namespace rondo::checkpoint_directory_test
