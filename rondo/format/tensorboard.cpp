#include "rondo/format/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>

#include "rondo/base/machine.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  constexpr std::uint32_t reversed_polynomial = 0x82F63B78U;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? reversed_polynomial : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> crc_table = make_crc_table();

// A CRC over data that holds CRCs is weak, so TFRecord stores them rotated and shifted.
std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8U; }

template <class Value>
std::string little_endian(Value value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Protobuf's wire format: a key of (field number << 3 | wire type), then the value.
enum WireType : unsigned { varint_type = 0, fixed64_type = 1, length_type = 2, fixed32_type = 5 };

std::string varint(std::uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  text += static_cast<char>(value);
  return text;
}
std::string key(unsigned field, WireType type) { return varint(field << 3 | type); }
std::string field_double(unsigned field, double value) {
  return key(field, fixed64_type) + little_endian(value);
}
std::string field_float(unsigned field, float value) {
  return key(field, fixed32_type) + little_endian(value);
}
std::string field_integer(unsigned field, std::int64_t value) {
  return key(field, varint_type) + varint(static_cast<std::uint64_t>(value));
}
std::string field_bytes(unsigned field, std::string_view value) {
  return key(field, length_type) + varint(value.size()) + std::string(value);
}

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
namespace event {
constexpr unsigned wall_time = 1, step = 2, file_version = 3, summary = 5;
}
namespace summary {
constexpr unsigned value = 1;
}
namespace summary_value {
constexpr unsigned tag = 1, simple_value = 2, histogram = 5;
}
namespace histogram_fields {
constexpr unsigned min = 1, max = 2, count = 3, sum = 4, sum_of_squares = 5, limits = 6, counts = 7;
}

std::string packed_doubles(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

std::filesystem::path event_file(const std::filesystem::path& directory, double wall_time) {
  std::filesystem::create_directories(directory);
  return directory /
         str("events.out.tfevents.", static_cast<long long>(wall_time), ".", host_name(), ".", ::getpid());
}

// The value of a scalar in a summary.
std::string scalar(std::string_view tag, double value) {
  return field_bytes(summary_value::tag, tag) +
         field_float(summary_value::simple_value, static_cast<float>(value));
}

// The record of an event that has one value.
std::string event_record(const std::string& value, std::int64_t step, double wall_time) {
  return tfrecord(field_double(event::wall_time, wall_time) + field_integer(event::step, step) +
                  field_bytes(event::summary, field_bytes(summary::value, value)));
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> data) {
  std::uint32_t crc = ~0U;
  for (const std::byte byte : data)
    crc = crc >> 8 ^ crc_table[(crc ^ static_cast<std::uint32_t>(byte)) & 0xFF];
  return ~crc;
}

std::string tfrecord(std::string_view data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + little_endian(masked(crc32c(as_bytes(length)))) + std::string(data) +
         little_endian(masked(crc32c(as_bytes(data))));
}

EventWriter::EventWriter(const std::filesystem::path& directory, double wall_time)
    : file_(event_file(directory, wall_time), OutputFile::Mode::append) {
  file_.write(tfrecord(field_double(event::wall_time, wall_time) +
                       field_bytes(event::file_version, "brain.Event:2")));
}

void EventWriter::add_scalar(std::string_view tag, double value, std::int64_t step, double wall_time) {
  file_.write(event_record(scalar(tag, value), step, wall_time));
}

void EventWriter::add_scalars(std::span<const std::pair<std::string, double>> values, std::int64_t step,
                              double wall_time) {
  std::string records;
  for (const auto& [tag, value] : values) records += event_record(scalar(tag, value), step, wall_time);
  if (!records.empty()) file_.write(records);
}

void EventWriter::add_histogram(std::string_view tag, const Histogram& histogram, std::int64_t step,
                                double wall_time) {
  namespace fields = histogram_fields;
  const std::string entry =
      field_double(fields::min, histogram.min) + field_double(fields::max, histogram.max) +
      field_double(fields::count, histogram.count) + field_double(fields::sum, histogram.sum) +
      field_double(fields::sum_of_squares, histogram.sum_of_squares) +
      field_bytes(fields::limits, packed_doubles(histogram.limits)) +
      field_bytes(fields::counts, packed_doubles(histogram.counts));
  const std::string value =
      field_bytes(summary_value::tag, tag) + field_bytes(summary_value::histogram, entry);
  file_.write(event_record(value, step, wall_time));
}

}  // namespace rondo
