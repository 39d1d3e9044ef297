#include "rondo/channel/shared_memory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::memory_room_test {
namespace {

namespace fs = std::filesystem;

// /proc and /sys of another machine, in a directory.
class MemoryRoomTest : public ::testing::Test {
 protected:
  MemoryRoomTest() {
    std::string pattern = (fs::temp_directory_path() / "rondo-room-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    put("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    1000 kB\nSwapFree: 24 kB\n");
  }
  ~MemoryRoomTest() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void put_group_v2(const std::string& group, const std::string& limit, int used, int droppable) const {
    const std::string at = "sys/fs/cgroup" + group;
    put(at + "/memory.max", limit + "\n");
    put(at + "/memory.current", str(used, "\n"));
    put(at + "/memory.stat", str("anon 5\ninactive_file ", droppable, "\n"));
  }

  fs::path root_;
};

TEST_F(MemoryRoomTest, IsWhatTheHostHasFreeWithoutGroups) {
  const MemoryRoom room = memory_room(root_);
  EXPECT_EQ(room.bytes, KiB(1024));
  EXPECT_NE(room.limit.find("this host"), std::string::npos) << room.limit;
}

TEST_F(MemoryRoomTest, IsTheLeastThatAnyGroupAroundLeaves) {
  put("proc/self/cgroup", "0::/jobs/seven\n");
  put_group_v2("/jobs/seven", "max", 1000, 0);
  put_group_v2("/jobs", "300000", 250000, 150000);
  const MemoryRoom room = memory_room(root_);
  // The limit minus used memory; page cache and swap count as free.
  EXPECT_EQ(room.bytes.count, 300000U - (250000 - 150000) + 24 * 1024);
  EXPECT_NE(room.limit.find("cgroup /jobs, 293.0 KiB"), std::string::npos) << room.limit;
}

TEST_F(MemoryRoomTest, ReadsCgroupV1AndRestrictedContainers) {
  put("proc/self/cgroup", "9:cpu:/x\n4:hugetlb,memory:/docker/0123\n0::/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "390000\n");
  put("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 10000\n");
  EXPECT_EQ(memory_room(root_).bytes.count, 20000U + 24 * 1024);
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory_room(root_).bytes, KiB(1024)) << "no limit";
}

TEST_F(MemoryRoomTest, ExceededLimitLeavesNoRoom) {
  put("proc/self/cgroup", "0::/a\n");
  put("proc/meminfo", "MemAvailable: 1000 kB\n");
  put_group_v2("/a", "1000", 2000, 0);
  EXPECT_EQ(memory_room(root_).bytes.count, 0U);
}

TEST(MemoryRoom, OfThisMachineIsBelowMemoryAndSwap) {
  const MemoryRoom room = memory_room();
  EXPECT_GT(room.bytes, KiB(64));
  EXPECT_LT(room.bytes.count, std::uint64_t{1} << 60);
}

TEST(MemoryRoom, ARefusalNamesSizeRoomLimitAndRemedy) {
  EXPECT_NO_THROW(require_room(MiB(1), "a test", {MiB(1), "x"}));
  try {
    require_room(GiB(3), "the buffers of a test", {MiB(512), "the memory limit of cgroup /jobs"});
    FAIL();
  } catch (const Error& e) {
    for (const std::string part : {"the buffers of a test", "3.0 GiB are needed", "512.0 MiB are left",
                                   "the memory limit of cgroup /jobs", "docker run --memory", "--shm-size"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace rondo::memory_room_test
