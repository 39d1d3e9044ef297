// Memory checkpoints: the state of a training in memory that outlives its ranks, on emulated hosts: after any
// tolerated loss training continues bit-identically.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <fstream>
#include <map>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/train/memory_checkpoint/memory_checkpoint.h"
#include "rondo/train/memory_checkpoint/newest_memory_checkpoint.h"
#include "rondo/train/memory_checkpoint_hosts.h"
#include "rondo/train/trainer.h"
#include "tests/backend/ranks.h"
#include "tests/parallel/strategy_told.h"
#include "tests/temporary_directory.h"
#include "tests/train/digits.h"
#include "tests/train/equality_models.h"

namespace rondo::memory_checkpoint_test {
namespace {

namespace fs = std::filesystem;
using testing::make_subject;
using testing::run_ranks;

// Memory of emulated hosts: a folder for each.
class Memory {
 public:
  fs::path of(int host) const { return directory_ / ("host" + std::to_string(host)); }
  fs::path step(int host, std::int64_t step) const { return of(host) / checkpoint_name(step); }

 private:
  TemporaryDirectory directory_;
};

struct Job {
  std::string strategy = "zero3";
  std::vector<int> hosts = {0, 0};  // by rank
};

// Trains up to step `until`, from the newest memory checkpoint if `resumes`, with a memory checkpoint every
// `every` steps (0: none). Returns the losses of its steps and the step that it resumed from.
struct Trained {
  std::int64_t from = 0;
  std::vector<double> losses;
};
Trained train(const Job& job, const Memory& memory, std::int64_t until, std::int64_t every, bool resumes,
              std::optional<std::int64_t> newer_than = {}) {
  Trained result;
  run_ranks(
      static_cast<int>(job.hosts.size()), "auto",
      [&](Context& context) {
        const fs::path root = memory.of(job.hosts[static_cast<std::size_t>(context.rank())]);
        const testing::Subject subject = make_subject("gpt");
        const auto strategy = testing::make_strategy(job.strategy, context, {});
        Trainer trainer(*strategy, subject.model);
        trainer.compile(testing::adamw());
        std::int64_t from = 0;
        if (resumes) {
          const auto checkpoint = newest_memory_checkpoint(context, root, newer_than);
          if (checkpoint) {
            EXPECT_TRUE(verify_checkpoint(*checkpoint).empty());
            trainer.restore(*checkpoint);
          }
          from = trainer.position().step;
        }
        const auto recorder = std::make_shared<testing::Recorder>();
        FitOptions options{.steps = until, .batch_size = 4, .callbacks = {recorder}};
        if (every > 0) {
          options.callbacks.push_back(std::make_shared<MemoryCheckpoint>(
              MemoryCheckpoint::Options{.root = root, .every_steps = every}));
        }
        trainer.fit(subject.data, options);
        if (context.rank() == 0) result = {from, recorder->losses()};
        barrier(context.world());
      },
      std::chrono::seconds(60), job.hosts);
  return result;
}

// Returns the losses of an undisturbed training's steps from `from`.
std::vector<double> undisturbed(const Job& job, std::int64_t until, std::int64_t from) {
  const Memory none;
  std::vector<double> losses = train(job, none, until, 0, false).losses;
  losses.erase(losses.begin(), losses.begin() + from);
  return losses;
}

void flip_a_byte(const fs::path& file) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-1, std::ios::end);
  const int last = stream.get();
  stream.seekp(-1, std::ios::end);
  stream.put(static_cast<char>(last ^ 1));
}

TEST(MemoryCheckpoint, RestartIsBitEqualUnderAnyStrategy) {
  for (const char* strategy : {"one_device", "ddp", "zero1", "zero3"}) {
    const Job job{strategy,
                  strategy == std::string("one_device") ? std::vector<int>{0} : std::vector<int>{0, 0}};
    const Memory memory;
    train(job, memory, 5, 2, false);
    // Older memory checkpoints are deleted when the newest one is complete.
    ASSERT_EQ(step_directories(memory.of(0)).size(), 1U) << strategy;
    const Trained again = train(job, memory, 8, 2, true);
    EXPECT_EQ(again.from, 4) << strategy;
    EXPECT_EQ(again.losses, undisturbed(job, 8, 4)) << strategy;
    for (const auto& entry : fs::directory_iterator(memory.of(0)))
      EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp")) << entry.path();
  }
}

TEST(MemoryCheckpoint, LostHostRestoresFromNeighbourMemory) {
  const Job job{"zero3", {0, 0, 1, 2}};
  const std::vector<double> expected = undisturbed(job, 6, 4);
  for (int lost = 0; lost < 3; ++lost) {
    const Memory memory;
    train(job, memory, 5, 2, false);
    // Each host has its own parts and those of the previous host.
    EXPECT_EQ(fs::exists(memory.step(1, 4) / part_name("model", 0, 4)), true);
    EXPECT_EQ(fs::exists(memory.step(1, 4) / part_name("model", 2, 4)), true);
    EXPECT_EQ(fs::exists(memory.step(1, 4) / part_name("model", 3, 4)), false);
    fs::remove_all(memory.of(lost));
    const Trained again = train(job, memory, 6, 1, true);
    EXPECT_EQ(again.from, 4) << lost;
    EXPECT_EQ(again.losses, expected) << lost;
  }
}

TEST(MemoryCheckpoint, TwoNeighboursThatAreLostAreTooMuch) {
  const Job job{"ddp", {0, 1, 2}};
  const Memory memory;
  train(job, memory, 4, 2, false);
  fs::remove_all(memory.of(1));
  fs::remove_all(memory.of(2));
  EXPECT_EQ(train(job, memory, 5, 0, true).from, 0);
}

TEST(MemoryCheckpoint, DamagedFileComesFromNeighbourOrIsRefused) {
  const Job job{"zero3", {0, 1}};
  const Memory memory;
  train(job, memory, 4, 2, false);
  const std::string part = part_name("optimizer", 1, 2);
  flip_a_byte(memory.step(0, 4) / part);
  {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(train(job, memory, 5, 0, true).from, 4);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(part), std::string::npos) << said;
    EXPECT_NE(said.find("host 0"), std::string::npos) << said;
  }
  // The good copy is in both memories again.
  EXPECT_TRUE(verify_checkpoint(memory.step(0, 4)).empty());
  // If no host has it intact, the previous memory checkpoint is used.
  for (const int host : {0, 1}) flip_a_byte(memory.step(host, 4) / part);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(train(job, memory, 5, 0, true).from, 2);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(part), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(memory.step(0, 4)));
}

TEST(MemoryCheckpoint, IsIgnoredUnlessNewerThanTheDisk) {
  const Job job{"ddp", {0, 0}};
  const Memory memory;
  train(job, memory, 4, 2, false);
  EXPECT_EQ(train(job, memory, 6, 0, true, 4).from, 0);
  EXPECT_EQ(train(job, memory, 6, 0, true, 3).from, 4);
}

TEST(MemoryCheckpoint, FailedWriteKeepsThePreviousOne) {
  const Job job{"ddp", {0, 1}};
  const Memory memory;
  train(job, memory, 2, 2, false);
  // A rename cannot replace a file by a directory.
  std::ofstream(memory.step(1, 3)) << "in the way";
  ::testing::internal::CaptureStderr();
  const std::vector<double> losses = train(job, memory, 3, 1, true).losses;
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("step 3"), std::string::npos) << said;
  EXPECT_EQ(losses, undisturbed(job, 3, 2));
  EXPECT_FALSE(fs::exists(memory.step(0, 3)));
  EXPECT_EQ(train(job, memory, 3, 0, true).from, 2);
}

TEST(MemoryCheckpointHosts, PartnersAreOnTheNextHost) {
  const std::vector<int> host_of{0, 0, 0, 1, 2, 2};
  const Memory memory;
  run_ranks(6, "native", [&](Context& context) {
    const MemoryCheckpointHosts hosts(context, memory.of(host_of[static_cast<std::size_t>(context.rank())]));
    EXPECT_EQ(hosts.count(), 3);
    EXPECT_EQ(hosts.own(), host_of[static_cast<std::size_t>(context.rank())]);
    EXPECT_EQ(hosts.host_before(0), 2);
    std::vector<int> partners;
    for (int rank = 0; rank < 6; ++rank) partners.push_back(hosts.partner(rank));
    EXPECT_EQ(partners, (std::vector<int>{3, 3, 3, 4, 0, 1}));
    EXPECT_EQ(hosts.leads(), context.rank() == 0 || context.rank() == 3 || context.rank() == 4);
  });
}

}  // namespace
}  // namespace rondo::memory_checkpoint_test
