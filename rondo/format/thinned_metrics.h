#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "rondo/format/metrics.h"

namespace rondo {

// One row for what two rows of a rank say of consecutive steps. Step, time, loss and learning rate are
// those of the last step; smallest_loss, largest_loss and largest_step_ms are of all of them, as is the
// larger peak and every other number's largest; times and throughput are means over the steps. A loss that is
// not finite is never lost: it is the largest.
MetricsRow joined_rows(const MetricsRow& earlier, const MetricsRow& later);

// Writes metrics.jsonl of a run of any length and width in bounded space. While the file has at most
// `most_rows` rows of steps, every step has its row on every rank. Beyond that, neighbouring rows of a rank
// become one (joined_rows), and from then on a row stands for twice as many steps; and so on. Rows of
// validations stay as they are. Rows that could not be written, as on a full disk, are written with the next
// ones, the newest `most_rows` of them; a file that was removed meanwhile is begun anew. Not thread-safe.
class ThinnedMetricsWriter {
 public:
  static constexpr std::size_t kMostRows = 65'536;

  // Goes on in a file that exists. Rows of steps behind `first_step` go, of a run that went on and died, and
  // with `its_validation` so do the validations of that step.
  ThinnedMetricsWriter(std::filesystem::path path, std::int64_t first_step, bool its_validation = false,
                       std::size_t most_rows = kMostRows);

  // One step of all ranks, in rank order.
  void append_step(std::span<const MetricsRow> of_ranks);
  // Several, in one write where nothing is thinned meanwhile.
  void append_steps(std::span<const std::vector<MetricsRow>> steps);
  void append_validation(const MetricsRow& row);
  // Rows of fewer steps than others stand for, of what is not in the file yet.
  void flush();

 private:
  void add(std::span<const MetricsRow> of_ranks);
  void complete();
  void open();
  void write();
  void thin();

  std::filesystem::path path_;
  std::size_t most_rows_;
  std::optional<MetricsWriter> writer_;
  std::size_t rows_ = 0;                   // of steps, in the file
  std::int64_t steps_ = 1;                 // that a row stands for
  std::vector<MetricsRow> begun_;          // by rank: of the steps since the last row
  std::vector<MetricsRow> rows_to_write_;  // in the order of steps, validations included
};

}  // namespace rondo
