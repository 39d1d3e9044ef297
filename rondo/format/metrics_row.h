#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace rondo {

// A line of metrics.jsonl: one rank's figures of a step, or of a validation pass. Missing measurements are
// empty.
struct MetricsRow {
  int rank = 0;                // rank of the row
  std::int64_t step = 0;       // optimizer steps finished in the whole training, including resumed runs
  std::int64_t epoch = 0;      // from 0
  double elapsed_s = 0;        // wall time since the start of training; resumed runs continue counting
  std::optional<double> loss;  // mean over the predictions of the global batch
  std::optional<double> validation_loss;        // only in rows of a validation pass
  std::optional<double> accuracy;               // share of correct predictions in the global batch
  std::optional<double> validation_accuracy;    // share of correct predictions in a validation pass
  std::optional<double> learning_rate;          // learning rate of the first parameter group
  std::optional<double> loss_scale;             // only if a gradient scaler is used
  std::optional<double> tokens_per_s;           // of all ranks together
  std::optional<double> samples_per_s;          // of all ranks together
  std::optional<double> step_ms;                // wall time
  std::optional<double> compute_ms;             // step_ms without exposed_comm_ms
  std::optional<double> comm_ms;                // time during which communication was active
  std::optional<double> exposed_comm_ms;        // part of comm_ms that computation waited for
  std::optional<std::uint64_t> peak_bytes;      // largest so far, from rondo's memory tracker
  std::optional<std::uint64_t> peak_rss_bytes;  // largest so far, from the kernel: resident memory
  std::optional<std::uint64_t> peak_pss_bytes;  // largest so far, with shared pages in proportion
  std::optional<std::int64_t> steps;  // for a row of several steps, of which `step` is the last: their number
  std::optional<double> smallest_loss;  // smallest loss over these steps
  std::optional<double>
      largest_loss;  // largest loss over these steps; a non-finite loss counts as the largest
  std::optional<double> largest_step_ms;  // longest of these steps
  // Further numbers by key: "validation_<name>" for a trainer's metrics, "gradient_norm", counters of modules
  // ("dropped_tokens").
  std::map<std::string, double> others = {};

  // Returns whether the row is of a validation pass instead of a step.
  bool is_validation() const;
};

}  // namespace rondo
