#include "rondo/memory/file_memory.h"

#include <gtest/gtest.h>

#include <cstring>

#include "rondo/base/error.h"
#include "rondo/memory/tracker.h"
#include "tests/temporary_directory.h"

namespace rondo::file_memory_test {
namespace {

TEST(FileMemory, IsZeroWritableAndWithoutAName) {
  const TemporaryDirectory directory;
  {
    const FileMemory memory(directory / "state", Bytes{10'000}, "a test");
    EXPECT_EQ(memory.data()[9'999], std::byte{0});
    std::memset(memory.data(), 7, 10'000);
    EXPECT_EQ(memory.data()[5'000], std::byte{7});
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
    EXPECT_EQ(replica_memory_tracker().file_bytes(), 10'000U);
    EXPECT_EQ(replica_memory_tracker().total(), 0U) << "files are apart from what is in memory";
  }
  EXPECT_EQ(replica_memory_tracker().file_bytes(), 0U);
}

TEST(FileMemory, NamesFullDiskAndLeavesNoFile) {
  const TemporaryDirectory directory;
  try {
    const FileMemory memory(directory / "state", GiB(1ULL << 30), "the optimizer's state");
    FAIL() << "a file of 2^60 bytes was made";
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const std::string& part :
         {(directory / "state").string(), std::string("for the optimizer's state needs"),
          std::string("are free"), std::string("name another directory")}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_THROW(FileMemory(directory / "no" / "state", Bytes{10}, "a test"), Error);
  EXPECT_EQ(replica_memory_tracker().file_bytes(), 0U);
}

}  // namespace
}  // namespace rondo::file_memory_test
