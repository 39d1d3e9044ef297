#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "rondo/base/error.h"
#include "rondo/channel/store.h"
#include "tests/collective/engine_threads.h"
#include "tests/collective/held_operation.h"
#include "tests/rank_processes.h"

namespace rondo::shared_memory::engine_fork_test {
namespace {

const Wait kNoLimit{};

// Forks a child that inherits the engine, but neither its thread nor its place in the group. Returns the
// child's wait status: 0 if it was refused to use the engine and could destroy it.
int drop_in_child(std::unique_ptr<Engine>& engine) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(240);
    engine->abort("a child has no say");
    engine->close("a child has no say");
    bool refused = false;
    try {
      engine->start({});
    } catch (const UsageError&) {
      refused = true;
    }
    engine.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(BackgroundFork, ChildrenCanOnlyDropTheirParentsEngine) {
  EXPECT_EQ(tests::run_rank_processes(
                2,
                [](Store& store, int rank) {
                  auto engine = std::make_unique<Engine>(store, rank_options(rank, 2), nullptr);
                  // Under way without a thread in the background.
                  const std::uint64_t sequence =
                      engine->start({.kind = OperationKind::all_reduce, .elements = 1, .by_schedule = true});
                  EXPECT_EQ(drop_in_child(engine), 0);
                  engine->wait_agreed(sequence, kNoLimit);
                  engine->wait(engine->start({}), kNoLimit);
                }),
            0);
}

// A thread that does not exist in the child may hold any of the engine's locks. The selection of tests for
// the address sanitizer knows this test by its suite (scripts/sanitize.sh).
TEST(ForkOfThreads, ChildrenCanDropTheirParentsEngine) {
  EXPECT_EQ(tests::run_rank_processes(2,
                                      [](Store& store, int rank) {
                                        auto engine =
                                            std::make_unique<Engine>(store, rank_options(rank, 2), nullptr);
                                        const auto held =
                                            start(*engine, OperationKind::all_reduce, 2'000'000);
                                        EXPECT_EQ(drop_in_child(engine), 0);
                                        EXPECT_TRUE(held->wait());
                                        EXPECT_EQ(held->error(), nullptr);
                                        EXPECT_EQ(held->input()[0], std::byte{3});
                                        engine->wait(engine->start({}), kNoLimit);
                                      }),
            0);
}

}  // namespace
}  // namespace rondo::shared_memory::engine_fork_test
