#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "rondo/base/time.h"
#include "rondo/data/dataset.h"
#include "rondo/train/trainer.h"

namespace rondo {

// Source and duration of an evaluator's work.
struct EvaluateCheckpointsOptions {
  std::filesystem::path run = {};  // directory of the training: its lock, and checkpoints/step-NNNNNNNN
  EvaluateOptions evaluate = {};   // its stop_requested ends the evaluator too
  Duration patience = std::chrono::minutes(5);  // longest wait for a training to begin
  std::function<bool()> stop_requested = {};    // called within evaluations too; empty: never
  // Called after each evaluation. May be empty.
  std::function<void(std::int64_t step, const std::map<std::string, double>& figures)> told = {};
};

// The last evaluation of an evaluator.
struct CheckpointEvaluation {
  std::int64_t step = -1;  // step of the checkpoint; -1: none
  std::map<std::string, double> figures = {};
};

// Polls a run for its newest checkpoint, evaluates it, and appends its figures as a row to
// RUN/metrics.evaluator.jsonl. Only reads the run otherwise. Returns the last evaluated checkpoint when the
// run's lock is released, all workers of its launcher have ended, or stop_requested returns true. An
// interrupted evaluation adds no row. `trainer` has one process. For a run that was trained earlier it
// returns if no training begins within `patience`; without any checkpoint it then throws TimeoutError. Throws
// DataError for another model's checkpoint.
CheckpointEvaluation evaluate_checkpoints(Trainer& trainer, const Dataset& data,
                                          const EvaluateCheckpointsOptions& options);

}  // namespace rondo
