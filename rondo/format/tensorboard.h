#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rondo/format/file.h"

// TensorBoard's event files: records of {length, masked CRC, data, masked CRC} (TFRecord), each an Event
// message in protobuf encoding. Written by hand, because libtorch exports protobuf symbols and a second
// protobuf would clash.
namespace rondo {

// CRC-32C (Castagnoli), as TFRecord uses it before masking.
std::uint32_t crc32c(std::span<const std::byte> data);

// `data` with TFRecord's frame around it.
std::string tfrecord(std::string_view data);

// How numbers are spread, as TensorBoard draws it: counts[i] of them lie above limits[i - 1] and not above
// limits[i]; the first bucket begins at `min`.
struct Histogram {
  double min = 0, max = 0;
  double count = 0, sum = 0, sum_of_squares = 0;
  std::vector<double> limits, counts;
};

// Writes DIRECTORY/events.out.tfevents.SECONDS.HOST.PID, which `tensorboard --logdir DIRECTORY` shows. Not
// thread-safe.
class EventWriter {
 public:
  // `wall_time` is in seconds since 1970.
  EventWriter(const std::filesystem::path& directory, double wall_time);
  void add_scalar(std::string_view tag, double value, std::int64_t step, double wall_time);
  // Several of one step, in one write.
  void add_scalars(std::span<const std::pair<std::string, double>> values, std::int64_t step,
                   double wall_time);
  void add_histogram(std::string_view tag, const Histogram& histogram, std::int64_t step, double wall_time);
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  OutputFile file_;
};

}  // namespace rondo
