#include "rondo/format/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/format/temporary_directory.h"

namespace rondo {
namespace {

using namespace std::string_literals;

TEST(TensorBoard, Crc32cMatchesThePublishedVectors) {
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\0'))), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\xff'))), 0x62A8AB43U);
}

// Splits a file of records, checking lengths.
std::vector<std::string> records(const std::string& content) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < content.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, content.data() + at, 8);
    const std::string data = content.substr(at + 12, length);
    EXPECT_EQ(content.substr(at, 16 + length), tfrecord(data));
    found.push_back(data);
    at += 16 + length;
  }
  return found;
}

TEST(TensorBoard, WritesEventsAsProtobufEncodesThem) {
  const TemporaryDirectory directory;
  EventWriter writer(directory / "logs", 1.0);
  writer.add_scalar("loss", 0.5, 300, 2.0);
  EXPECT_TRUE(writer.path().filename().string().starts_with("events.out.tfevents.1."));
  const std::vector<std::string> events = records(read_all(writer.path()));
  ASSERT_EQ(events.size(), 2U);
  // wall_time = 1.0 (field 1, double), file_version = "brain.Event:2" (field 3)
  EXPECT_EQ(events[0],
            "\x09\0\0\0\0\0\0\xf0\x3f\x1a\x0d"
            "brain.Event:2"s);
  // wall_time = 2.0, step = 300 (field 2), summary (field 5) { value (1) { tag (1) = "loss", simple_value (2)
  // = 0.5 } }
  EXPECT_EQ(events[1], "\x09\0\0\0\0\0\0\0\x40\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f"s);
}

// A record as TensorFlow's own writer makes it: 12 bytes in front, 4 behind.
TEST(TensorBoard, FramesAsTFRecord) {
  const std::string record = tfrecord("abc");
  ASSERT_EQ(record.size(), 19U);
  EXPECT_EQ(record.substr(0, 8), "\x03\0\0\0\0\0\0\0"s);
  EXPECT_EQ(record.substr(12, 3), "abc");
}

}  // namespace
}  // namespace rondo
