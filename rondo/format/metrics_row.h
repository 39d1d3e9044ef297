#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace rondo {

// A line of metrics.jsonl: one rank's figures of a step, or a pass over the validation data. What was not
// measured is empty.
struct MetricsRow {
  int rank = 0;                // that it is of
  std::int64_t step = 0;       // optimizer steps finished, counted over the whole training, resumes included
  std::int64_t epoch = 0;      // from 0
  double elapsed_s = 0;        // wall time since training started; a resumed run goes on counting
  std::optional<double> loss;  // mean over the predictions of the global batch
  std::optional<double> validation_loss;        // only in rows of a validation pass
  std::optional<double> accuracy;               // share of right predictions, likewise
  std::optional<double> validation_accuracy;    // likewise in a validation
  std::optional<double> learning_rate;          // of the first parameter group
  std::optional<double> loss_scale;             // under a gradient scaler
  std::optional<double> tokens_per_s;           // of all ranks together
  std::optional<double> samples_per_s;          // of all ranks together
  std::optional<double> step_ms;                // wall time
  std::optional<double> compute_ms;             // step_ms without exposed_comm_ms
  std::optional<double> comm_ms;                // time in which communication was under way
  std::optional<double> exposed_comm_ms;        // the part of it that computation waited for
  std::optional<std::uint64_t> peak_bytes;      // largest so far, by rondo's memory tracker
  std::optional<std::uint64_t> peak_rss_bytes;  // largest so far, by the kernel: resident
  std::optional<std::uint64_t> peak_pss_bytes;  // likewise, with shared pages by proportion
  std::optional<std::int64_t> steps;      // of a row for several steps, the last of which is `step`: how many
  std::optional<double> smallest_loss;    // of these steps
  std::optional<double> largest_loss;     // likewise; of these one that was not finite
  std::optional<double> largest_step_ms;  // likewise
  // Further numbers by key: "validation_<name>" of a trainer's metrics, "gradient_norm",
  // what modules count ("dropped_tokens").
  std::map<std::string, double> others = {};

  // Of a pass over the validation data, not of a step.
  bool is_validation() const;
};

}  // namespace rondo
