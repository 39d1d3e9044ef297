#include "rondo/channel/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <set>

#include "rondo/base/error.h"
#include "rondo/channel/waiting.h"

namespace rondo::shared_memory_test {
namespace {

// If above 0, a signal interrupts calls for more bytes, as a periodic signal does.
std::atomic<off_t> longest_fallocate = 0;

}  // namespace
}  // namespace rondo::shared_memory_test

// Replaces the C library's function: a kernel before 6.10 under a periodic signal.
int fallocate(int file, int mode, off_t offset, off_t length) {
  const off_t longest = rondo::shared_memory_test::longest_fallocate;
  if (longest > 0 && length > longest) {
    errno = EINTR;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fallocate, file, mode, offset, length));
}

namespace rondo::shared_memory_test {
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
    // The child inherited the registry: opens by pid, as an unrelated process does.
    const SharedMemoryAddress parsed = parse_shared_memory_address(address);
    const SharedMemory mapped = SharedMemory::open(parsed.pid, parsed.descriptor);
    mapped.data()[100] = std::byte{42};
    _exit(0);
  }
  EXPECT_EQ(exit_status(child), 0);
  EXPECT_EQ(published.memory->data()[100], std::byte{42});
}

TEST(SharedMemory, IsPrivateAndHasNoName) {
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

// Returns the exception of `body`, which runs in a process of its own; "" if it throws none.
std::string error_in_child(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::string message;
    try {
      body();
    } catch (const std::exception& e) {
      message = e.what();
    }
    _exit(write(ends[1], message.data(), message.size()) == static_cast<ssize_t>(message.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string message(4096, '\0');
  const ssize_t count = read(ends[0], message.data(), message.size());
  close(ends[0]);
  EXPECT_EQ(exit_status(child), 0);
  message.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return message;
}

void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

void limit(decltype(RLIMIT_AS) resource, rlim_t value) {
  const rlimit limits{value, value};
  if (setrlimit(resource, &limits) != 0) throw Error("setrlimit failed");
}

TEST(SharedMemory, NamesTheLimitThatStandsInTheWay) {
  expect_parts(error_in_child([] {
                 limit(RLIMIT_FSIZE, 1 << 20);
                 SharedMemory::create("test", MiB(4));
               }),
               {"4.0 MiB", "1.0 MiB", "ulimit -f"});
  // A sanitizer's own mappings are larger than any limit that would suit the test.
  if (std::getenv("TSAN_OPTIONS") == nullptr && std::getenv("ASAN_OPTIONS") == nullptr) {
    expect_parts(error_in_child([] {
                   limit(RLIMIT_AS, rlim_t{1} << 30);
                   SharedMemory::create("test", GiB(2));
                 }),
                 {"2.0 GiB", "ulimit -v"});
  }
  expect_parts(error_in_child([] {
                 limit(RLIMIT_NOFILE, 3);
                 SharedMemory::create("test", MiB(4));
               }),
               {"4.0 MiB", "Too many open files", "ulimit -n"});
}

// A file system too small for the file simulates a system without memory: accessing the pages would raise
// SIGBUS.
TEST(SharedMemory, MissingPagesAreAnErrorNotASignal) {
  const std::string message = error_in_child([] {
    const std::filesystem::path place = std::filesystem::temp_directory_path();
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tiny", place.c_str(), "tmpfs", 0, "size=1m") != 0) {
      throw Error("skipped: mounting is not allowed here");
    }
    const int file = open((place / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, 16 << 20) != 0) throw Error("no file");
    const SharedMemory memory = SharedMemory::adopt(file);
    memory.commit(0, 64 << 10, "a little");
    memory.data()[0] = std::byte{1};
    memory.commit(0, 8 << 20, "a test");
  });
  if (message.starts_with("skipped")) GTEST_SKIP() << message;
  expect_parts(message,
               {"not enough memory for a test", "8.0 MiB", "No space left on device", "raise the limit"});
}

TEST(SharedMemory, CommitsPagesDespiteRepeatedSignals) {
  const std::size_t size = MiB(64).count + 4096 * 3;
  const SharedMemory memory = SharedMemory::create("test", Bytes{size});
  longest_fallocate = 3 << 20;
  memory.commit(4096, size - 4096, "a test");
  longest_fallocate = 0;
  struct stat status {};
  ASSERT_EQ(fstat(memory.descriptor(), &status), 0);
  EXPECT_EQ(static_cast<std::size_t>(status.st_blocks) * 512, size - 4096);
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

TEST(SharedArena, RefusesWhatTheMachineHasNot) {
  const auto all =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t too_much = 2 * all + memory_room().bytes.count;
  // No larger than necessary: the thread sanitizer leaves little address space.
  SharedArena arena(Bytes{2 * SharedArena::size_class(too_much)});
  try {
    arena.allocate(too_much);
    FAIL();
  } catch (const Error& e) {
    expect_parts(e.what(), {to_string(Bytes{SharedArena::size_class(too_much)}), "are left by"});
  }
  EXPECT_EQ(arena.usage().used_bytes, 0U);
  EXPECT_NE(arena.allocate(MiB(1).count), nullptr) << "less is still possible";
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
}  // namespace rondo::shared_memory_test
