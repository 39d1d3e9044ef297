#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "rondo/backend/context.h"
#include "rondo/data/dataset.h"
#include "rondo/nn/model.h"
#include "rondo/precision/training_precision.h"
#include "rondo/strategy/group_rates.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/recipe.h"
#include "rondo/strategy/sharded_state.h"
#include "rondo/strategy/step_totals.h"

namespace rondo {

// What this process does in a step, in this order; forward and backward once for each batch of the window.
// What happens between backward and optimizer is waiting for gradients.
enum class StepPhase { forward, backward, waiting, optimizer, end };

// What a step is told.
struct StepSettings {
  std::uint64_t seed = 0;  // of the training: what SampleDropout draws with
  std::int64_t step = 0;   // optimizer steps done before
  // Of the first parameter group; others keep their proportion to it. Empty leaves all as they are.
  std::optional<double> learning_rate = {};
  double clip_norm = 0;  // gradients are scaled down to this L2 norm over all parameters; 0 is never
  // Asked before the last backward pass: whether this process was asked to stop. May be empty.
  std::function<bool()> stop_requested = {};
  std::function<void(StepPhase)> on_phase = {};  // told as each begins; may be empty
};

// Of a step, the same on all ranks.
struct StepResult {
  StepTotals totals;                         // over all replicas
  std::optional<double> gradient_norm = {};  // L2, before clipping; empty where nothing is clipped
  std::optional<double> loss_scale = {};     // that gradients were computed with; empty without one
  bool skipped = false;                      // a gradient was not finite, so the weights stay
};

// The replicas of a process.
struct ProcessReplicas {
  int concurrent_forwards =
      1;  // forward passes that Strategy::run() can make at the same time, one each call
  // The largest memory of each replica so far, in bytes, where the process tracks its memory; empty for a
  // process that is a replica itself.
  std::vector<std::uint64_t> peak_bytes = {};
};

// A model in training, however it is spread over processes and devices. Methods are collective (all ranks
// call them in the same order) unless they are const. One thread uses an object.
class Training {
 public:
  virtual ~Training() = default;

  // Makes the optimizer, and sets what train_step() minimises. Before the first step; again to go on with
  // another optimizer.
  virtual void compile(OptimizerFactory optimizer, LossFunction loss) = 0;

  // One optimizer step: forward, loss and backward of each batch of `window`, communication, clipping,
  // update. The gradient is that of the mean loss over the predictions of all batches of all replicas.
  // Batches without samples stand in where a replica has run out of data. All ranks have windows of one
  // length. Throws UsageError when the model, the loss function and the batch do not fit each other,
  // CommunicationError when a rank is lost.
  virtual StepResult train_step(std::span<const Batch> window, const StepSettings& settings) = 0;

  // The model's outputs, for evaluation and prediction. As PreparedModel::parts() was made ready for it:
  // collective or not.
  virtual Tensors forward(const Batch& batch) = 0;

  // Returns facts about this process's replicas.
  virtual ProcessReplicas process_replicas() const { return {}; }
  std::vector<std::uint64_t> replica_peak_bytes() const { return process_replicas().peak_bytes; }  // likewise

  // Returns what this process has of parameters, buffers and what the optimizer remembers, after the last
  // step. Collective.
  ShardedState state();
  // State was written into model() and optimizer() from outside, or into the shards of state(), on all ranks,
  // for example a checkpoint of `steps` optimizer steps: training goes on with it. Collective.
  virtual void state_loaded(std::int64_t steps);

  // The ranks `leaving` of the present world, which will not be in the next one, give what only they hold of
  // the state to those that stay, who keep it until rebuild(). Between steps; collective in the present
  // world, with the same list on all ranks. Throws UsageError for a list that is not of its ranks or leaves
  // nobody, and for a training that cannot be rebuilt.
  virtual void hand_over(const std::vector<int>& leaving);
  // A new membership epoch: training goes on among the ranks of `context`, others and more or fewer of them
  // than before, between steps. Collective in the new world. A process that joins has prepared the same
  // recipe in a world of its own.
  //
  // The state that counts is the newest, by optimizer steps, and of equal ones that of the largest world;
  // ranks that are behind, or whose last step was still waiting for gradients, take it from the others.
  // Parameters, buffers and the optimizer's state move; what communication remembers (error feedback) and
  // the random generators begin anew. Returns a rank that had the newest state: what else is to go on,
  // such as the position in the data, is there. Throws UsageError before anything changes for a world that
  // the strategy's options do not fit, MismatchError for ranks with different models, DataError on all ranks
  // when the only holders of a part of the state have left without hand_over(): it names the first such
  // elements, and the training, which is rebuilt, refuses to step until state_loaded().
  virtual int rebuild(const Context& context);

  virtual const Model& model() const = 0;  // of this process, or its first one
  // What optimises this process's parameters. After compile().
  virtual torch::optim::Optimizer& optimizer() = 0;
  // Returns the rate of the optimizer's first parameter group that has one.
  double learning_rate() { return rate_of(optimizer()); }
  virtual TrainingPrecision& precision() = 0;  // what is computed in which dtype
  // What this process's replica has of the model, and how it communicates.
  virtual PreparedModel& prepared() = 0;
};

}  // namespace rondo
