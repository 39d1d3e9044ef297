#pragma once

#include <memory>
#include <vector>

#include "rondo/cost/profile.h"
#include "rondo/data/dataset.h"
#include "rondo/models/model.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/optimizers/optimizer.h"

namespace rondo {

struct ModelProfileOptions {
  OptimizerOptions optimizer = {};
  LossFunction loss = cross_entropy;  // minimised loss
  // Counted passes of one measurement, with and without checkpointing each.
  int passes = 8;
  // Passes before the first counted one; there is one more after each switch of checkpointing.
  int warm_up = 2;
};

// Trains a model on one batch in this process, unsharded, and measures it. Not thread-safe.
class ModelProfiler {
 public:
  // The model's weights change. Throws UsageError for an unknown optimizer and an empty batch. A pass throws
  // for a batch that the model or the loss does not accept.
  ModelProfiler(Model model, Batch batch, const ModelProfileOptions& options);
  ~ModelProfiler();
  ModelProfiler(const ModelProfiler&) = delete;
  ModelProfiler& operator=(const ModelProfiler&) = delete;

  // Alternates passes with and without checkpointing, so that both see the same state of the machine. Further
  // calls add to the measurements.
  void measure();
  // Returns the relative spread: half of all measured passes lie within this share of their median.
  double spread() const;
  // Returns everything except the link (docs/planner/profile-file.md); times are medians of all measurements.
  cost::Profile profile() const;
  // Returns the seconds of all units for every measured pass without checkpointing, in order.
  std::vector<double> passes() const;
  // Runs one training step without measuring it.
  void pass();
  // Returns true if the last pass left a trained parameter without a gradient.
  bool has_unused_parameters() const;
  // Returns the model without gradients. No other method may be called afterwards.
  Model take_model();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
