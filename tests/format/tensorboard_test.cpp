#include "rondo/format/metrics_export.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/temporary_directory.h"

namespace rondo::tensorboard_test {
namespace {

using namespace std::string_literals;

TEST(TensorBoard, Crc32cMatchesThePublishedVectors) {
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\0'))), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\xff'))), 0x62A8AB43U);
}

// Splits a file into records and checks the lengths.
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

TEST(TensorBoard, SeveralScalarsAreTheEventsOfEach) {
  const TemporaryDirectory directory;
  EventWriter together(directory / "together", 1.0);
  EventWriter apart(directory / "apart", 1.0);
  const std::vector<std::pair<std::string, double>> values = {{"loss", 0.5}, {"rate", 1e9}, {"ms", -1}};
  together.add_scalars(values, 300, 2.0);
  for (const auto& [tag, value] : values) apart.add_scalar(tag, value, 300, 2.0);
  EXPECT_EQ(read_all(together.path()), read_all(apart.path()));
  EXPECT_EQ(records(read_all(together.path())).size(), 4U);
}

TEST(TensorBoard, WritesHistogramsAsProtobufEncodesThem) {
  const TemporaryDirectory directory;
  EventWriter writer(directory / "logs", 1.0);
  writer.add_histogram(
      "w",
      {.min = -1, .max = 1, .count = 3, .sum = 0.5, .sum_of_squares = 2, .limits = {0, 1}, .counts = {1, 2}},
      300, 2.0);
  const std::vector<std::string> events = records(read_all(writer.path()));
  ASSERT_EQ(events.size(), 2U);
  const auto number = [](double value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  // min, max, num, sum, sum_squares (fields 1 to 5), bucket_limit and bucket (6 and 7, packed).
  const std::string histogram = "\x09" + number(-1) + "\x11" + number(1) + "\x19" + number(3) + "\x21" +
                                number(0.5) + "\x29" + number(2) + "\x32\x10" + number(0) + number(1) +
                                "\x3a\x10" + number(1) + number(2);
  // As above, with histo (5) in place of simple_value.
  const std::string value = "\x0a\x01w\x2a" + std::string(1, static_cast<char>(histogram.size())) + histogram;
  EXPECT_EQ(events[1].substr(events[1].size() - value.size()), value);
}

// A record in TensorFlow's format: 12 bytes before the data, 4 bytes after it.
TEST(TensorBoard, FramesAsTFRecord) {
  const std::string record = tfrecord("abc");
  ASSERT_EQ(record.size(), 19U);
  EXPECT_EQ(record.substr(0, 8), "\x03\0\0\0\0\0\0\0"s);
  EXPECT_EQ(record.substr(12, 3), "abc");
}

}  // namespace
}  // namespace rondo::tensorboard_test
