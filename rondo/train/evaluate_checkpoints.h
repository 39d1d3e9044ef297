#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "rondo/base/time.h"
#include "rondo/data/dataset.h"
#include "rondo/train/trainer.h"

namespace rondo {

// What an evaluator looks at, and for how long.
struct EvaluateCheckpointsOptions {
  std::filesystem::path run = {};  // directory of the training: its lock, and checkpoints/step-NNNNNNNN
  EvaluateOptions evaluate = {};   // its stop_requested ends the evaluator as the one below
  Duration patience = std::chrono::minutes(5);  // longest wait for a training to begin
  std::function<bool()> stop_requested = {};    // also within evaluations; empty: never
  // Told of each evaluation. May be empty.
  std::function<void(std::int64_t step, const std::map<std::string, double>& figures)> told = {};
};

// The last evaluation of an evaluator.
struct CheckpointEvaluation {
  std::int64_t step = -1;  // of the checkpoint; -1: there was none
  std::map<std::string, double> figures = {};
};

// What an evaluator does: evaluates each checkpoint of a run that is the newest one when it looks there, with
// its figures as a row of RUN/metrics.evaluator.jsonl. It reads the run only. Returns when nobody holds the
// run any more, all workers of its launcher have ended, or stop_requested says so, with the last checkpoint
// evaluated: one whose evaluation was stopped leaves no row. `trainer` is of one process. Of a run that was
// trained before it returns when no training begins within `patience`; where there is no checkpoint either it
// throws TimeoutError then. Throws DataError for another model's checkpoint.
CheckpointEvaluation evaluate_checkpoints(Trainer& trainer, const Dataset& data,
                                          const EvaluateCheckpointsOptions& options);

}  // namespace rondo
