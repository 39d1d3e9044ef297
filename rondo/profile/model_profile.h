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
  LossFunction loss = cross_entropy;  // what is minimised
  int passes = 8;   // of one measurement that count, for each of with and without checkpointing
  int warm_up = 2;  // before the first of them; one more whenever checkpointing is switched
};

// Trains a model on one batch in this process, unsharded, and measures it. One thread.
class ModelProfiler {
 public:
  // The model's weights change. Throws UsageError for an unknown optimizer and a batch of no samples; in a
  // pass for a batch that the model or the loss does not take.
  ModelProfiler(Model model, Batch batch, const ModelProfileOptions& options);
  ~ModelProfiler();
  ModelProfiler(const ModelProfiler&) = delete;
  ModelProfiler& operator=(const ModelProfiler&) = delete;

  // Passes with and without checkpointing in turns, so that both see the same machine. What is measured again
  // is added to what is known.
  void measure();
  // Half of all measured passes lie within this share of their median.
  double spread() const;
  // Everything but the link, as in docs/planner/profile-file.md; times are medians over everything that was
  // measured.
  cost::Profile profile() const;
  // Seconds of all units in every measured pass without checkpointing, in the order of measuring.
  std::vector<double> passes() const;
  // One training step that is not measured.
  void pass();
  // Whether the last pass gave some trained parameter no gradient.
  bool has_unused_parameters() const;
  // Gives the model back, without gradients; nothing else may be called after it.
  Model take_model();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
