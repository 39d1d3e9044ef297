// Two processes write a checkpoint in parts and one or both are killed at any moment. `make survive` runs 500
// rounds.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <utility>

#include "rondo/base/json_strict.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/train/file_records.h"
#include "tests/temporary_directory.h"

namespace rondo::parts_kill_test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kElements = 20'000;

// A pipe between two processes, which ends when either of them exits.
class Pipe {
 public:
  Pipe() { opened_ = ::pipe2(ends_.data(), O_CLOEXEC) == 0; }
  ~Pipe() {
    close_reader();
    close_writer();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  bool opened() const { return opened_; }
  void close_reader() { close(ends_[0]); }
  void close_writer() { close(ends_[1]); }
  // Returns false if the other end is closed.
  bool put(std::string_view text) const {
    const std::uint64_t size = text.size();
    return put(&size, sizeof size) && put(text.data(), text.size());
  }
  std::optional<std::string> take() const {
    std::uint64_t size = 0;
    if (!take(&size, sizeof size)) return {};
    std::string text(size, '\0');
    if (!take(text.data(), text.size())) return {};
    return text;
  }

 private:
  static void close(int& end) {
    if (end >= 0) ::close(std::exchange(end, -1));
  }
  bool put(const void* data, std::size_t size) const {
    return ::write(ends_[1], data, size) == static_cast<ssize_t>(size);
  }
  bool take(void* data, std::size_t size) const {
    auto* to = static_cast<char*>(data);
    while (size > 0) {
      const ssize_t got = ::read(ends_[0], to, size);
      if (got <= 0) return false;
      to += got;
      size -= static_cast<std::size_t>(got);
    }
    return true;
  }

  std::array<int, 2> ends_{-1, -1};
  bool opened_ = false;
};

// Returns half of a tensor and of its optimizer state, filled with `step`.
CheckpointPart part_of(int rank, std::int64_t step) {
  const at::Tensor half = at::full({kElements / 2}, static_cast<double>(step), at::kFloat);
  const std::int64_t begin = rank * (kElements / 2);
  return {.model = {flat_shard("w", {kElements}, begin, half)},
          .optimizer = {flat_shard("optimizer/w/exp_avg", {kElements}, begin, half)},
          .number = rank,
          .count = 2};
}

// Rank 1: writes its part to the directory that rank 0 names, and sends its records to rank 0.
void write_second(const Pipe& directories, const Pipe& records, std::int64_t step) {
  for (;; ++step) {
    const std::optional<std::string> directory = directories.take();
    if (!directory) return;
    if (!records.put(to_json(write_part(*directory, part_of(1, step))).dump())) return;
  }
}

// Rank 0: also writes the rest and commits, and reports the commit to the test.
void write_first(const fs::path& root, const Pipe& directories, const Pipe& records, const Pipe& commits,
                 std::int64_t step) {
  for (;; ++step) {
    remove_abandoned_checkpoints(root);
    CheckpointWriter writer(root, step);
    if (!directories.put(writer.directory().string())) return;
    for (FileRecord& file : write_part(writer.directory(), part_of(0, step))) writer.add(std::move(file));
    const std::optional<std::string> said = records.take();
    if (!said) return;
    for (FileRecord& file : parse_file_records(parse_json_strict(*said, "rank 1's records")))
      writer.add(std::move(file));
    CheckpointContents rest;
    rest.values["step"] = step;
    write_rest(writer, rest);
    writer.commit(1);
    if (!commits.put(std::to_string(step))) return;
  }
}

void expect_step(const fs::path& checkpoint, std::int64_t step) {
  ASSERT_TRUE(verify_checkpoint(checkpoint).empty());
  for (const char* kind : {"model", "optimizer"}) {
    const StoredTensors stored = stored_tensors(checkpoint, kind);
    ASSERT_EQ(stored.size(), 1U) << kind;
    ASSERT_TRUE(
        at::equal(stored.front().full(), at::full({kElements}, static_cast<double>(step), at::kFloat)))
        << kind << " of step " << step;
  }
  ASSERT_EQ(read_checkpoint_values(checkpoint).at("step"), step);
}

TEST(CheckpointParts, SurviveKillAtAnyMoment) {
  // Memory instead of a disk: a kill loses no data that the kernel has.
  const TemporaryDirectory directory("/dev/shm");
  const fs::path root = directory / "checkpoints";
  RandomStream random(17);
  std::int64_t committed = 0;
  const char* const wanted = std::getenv("RONDO_SURVIVE_KILLS");
  const int rounds = wanted != nullptr ? std::atoi(wanted) : 40;
  for (int round = 0; round < rounds; ++round) {
    Pipe directories, records, commits;
    ASSERT_TRUE(directories.opened() && records.opened() && commits.opened());
    std::array<pid_t, 2> ranks{};
    for (int rank = 0; rank < 2; ++rank) {
      ranks[static_cast<std::size_t>(rank)] = ::fork();
      if (ranks[static_cast<std::size_t>(rank)] != 0) continue;
      ::signal(SIGPIPE, SIG_IGN);
      try {
        // A rank keeps only its end of each pipe, so that the other's death ends its wait.
        if (rank == 0) {
          directories.close_reader();
          records.close_writer();
          commits.close_reader();
          write_first(root, directories, records, commits, committed + 1);
        } else {
          directories.close_writer();
          records.close_reader();
          commits.close_reader();
          commits.close_writer();
          write_second(directories, records, committed + 1);
        }
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      ::_exit(0);
    }
    for (Pipe* pipe : {&directories, &records}) {
      pipe->close_reader();
      pipe->close_writer();
    }
    commits.close_writer();
    // Each round waits for its first commit; the kill then happens at any point of the next saves.
    const std::optional<std::string> first = commits.take();
    ASSERT_TRUE(first) << "round " << round;
    committed = std::stoll(*first);
    const timespec moment{0, static_cast<long>(random.below(8'000'000))};
    ::ppoll(nullptr, 0, &moment, nullptr);
    // Kills one of them, whose peer then exits on its own, or both.
    const std::uint64_t victim = random.below(3);
    for (std::uint64_t rank = 0; rank < 2; ++rank) {
      if (victim == 2 || victim == rank) ::kill(ranks[rank], SIGKILL);
    }
    for (const pid_t rank : ranks) ::waitpid(rank, nullptr, 0);
    while (const std::optional<std::string> step = commits.take()) committed = std::stoll(*step);

    const auto newest = newest_checkpoint(root);
    ASSERT_TRUE(newest) << "round " << round;
    ASSERT_GE(newest->step, committed);
    ASSERT_LE(newest->step, committed + 1);
    expect_step(newest->path, newest->step);
    ASSERT_FALSE(HasFatalFailure()) << "round " << round;
    committed = newest->step;
    remove_abandoned_checkpoints(root);
    for (const auto& entry : fs::directory_iterator(root))
      ASSERT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path();
  }
  std::printf("kills in a save in parts: %d, each time the newest checkpoint was intact\n", rounds);
}

}  // namespace
}  // namespace rondo::parts_kill_test
