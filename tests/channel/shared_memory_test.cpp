#include "rondo/channel/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <set>

#include "rondo/base/error.h"
#include "rondo/channel/peer_watch.h"
#include "rondo/channel/shared_arena.h"

namespace rondo {
namespace {

int exit_status(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(SharedMemory, IsSharedWithAnotherProcessByAddressAlone) {
  const PublishedMemory published = publish_shared_memory("test", KiB(64));
  const std::string address = to_string(published.address);
  const pid_t child = fork();
  if (child == 0) {
    // The child inherited the registry: open by pid to take the path of an unrelated process.
    const SharedMemoryAddress parsed = parse_shared_memory_address(address);
    const SharedMemory mapped = SharedMemory::open(parsed.pid, parsed.descriptor);
    mapped.data()[100] = std::byte{42};
    _exit(0);
  }
  EXPECT_EQ(exit_status(child), 0);
  EXPECT_EQ(published.memory->data()[100], std::byte{42});
}

TEST(SharedMemory, IsPrivateToTheUserAndHasNoName) {
  const PublishedMemory published = publish_shared_memory("test", KiB(64));
  struct stat status {};
  ASSERT_EQ(fstat(published.memory->descriptor(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_EQ(status.st_nlink, 0U);
}

TEST(SharedMemory, RefusesAnImpostor) {
  const PublishedMemory published = publish_shared_memory("test", KiB(64));
  SharedMemoryAddress wrong = published.address;
  wrong.nonce ^= 1;
  EXPECT_THROW(attach_shared_memory(wrong), Error);
  EXPECT_THROW(SharedMemory::open(getpid(), 9999), Error);
}

TEST(SharedMemory, NamesTheFileSizeLimit) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      SharedMemory::create("test", MiB(4));
    } catch (const Error& e) {
      _exit(std::strstr(e.what(), "ulimit -f") != nullptr ? 0 : 1);
    }
    _exit(2);
  }
  EXPECT_EQ(exit_status(child), 0);
}

TEST(SharedArena, HandsOutDisjointBlocksAndReusesThem) {
  SharedArena arena(GiB(4));
  std::mt19937 random(7);
  std::map<std::byte*, std::size_t> live;
  for (int i = 0; i < 2000; ++i) {
    if (live.empty() || random() % 2 == 0) {
      const std::size_t bytes = random() % (std::size_t{1} << (random() % 22)) + 1;
      auto* block = static_cast<std::byte*>(arena.allocate(bytes));
      ASSERT_NE(block, nullptr);
      ASSERT_TRUE(arena.contains(block));
      const auto next = live.upper_bound(block);
      if (next != live.end()) {
        ASSERT_LE(block + bytes, next->first);
      }
      if (next != live.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, block);
      }
      std::memset(block, 1, bytes);
      live[block] = bytes;
    } else {
      const auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      arena.release(victim->first);
      live.erase(victim);
    }
  }
  void* const first = arena.allocate(MiB(3).count);
  arena.release(first);
  EXPECT_EQ(arena.allocate(MiB(3).count), first);
}

TEST(SharedArena, SizeClassesWasteLittle) {
  for (std::size_t bytes = 1; bytes < (std::size_t{1} << 32); bytes = bytes * 3 / 2 + 1) {
    const std::size_t size = SharedArena::size_class(bytes);
    EXPECT_GE(size, bytes);
    EXPECT_EQ(size % 4096, 0U);
    if (bytes > (1U << 20)) {
      EXPECT_LE(size, bytes + bytes / 8 + 1) << bytes;
    }
  }
}

TEST(SharedArena, SaysWhenTheReserveIsUsedUp) {
  SharedArena arena(MiB(1));
  EXPECT_EQ(arena.allocate(MiB(2).count), nullptr);
}

TEST(PeerWatch, SeesAKilledProcessBeforeItIsReaped) {
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  PeerWatch watch;
  watch.add(3, child);
  watch.add(4, getpid());
  EXPECT_TRUE(watch.ended().empty());
  kill(child, SIGKILL);
  while (watch.ended().empty()) {
  }
  EXPECT_EQ(watch.ended(), std::vector<int>{3});
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace rondo
