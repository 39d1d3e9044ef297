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

// Phases of this process in a step, in this order; forward and backward once for each batch of the window.
// `waiting` is the time between backward and optimizer, for gradients.
enum class StepPhase { forward, backward, waiting, optimizer, end };

// Settings of a step.
struct StepSettings {
  std::uint64_t seed = 0;  // seed of the training, for SampleDropout
  std::int64_t step = 0;   // optimizer steps done before
  // Learning rate of the first parameter group; others keep their proportion to it. Empty: no change.
  std::optional<double> learning_rate = {};
  double clip_norm = 0;  // limit of the gradients' L2 norm over all parameters; 0: no clipping
  // Returns whether this process was asked to stop; called before the last backward pass. May be empty.
  std::function<bool()> stop_requested = {};
  std::function<void(StepPhase)> on_phase = {};  // called as each phase begins; may be empty
};

// The result of a step, the same on all ranks.
struct StepResult {
  StepTotals totals;                         // sums over all replicas
  std::optional<double> gradient_norm = {};  // L2, before clipping; empty without clipping
  std::optional<double> loss_scale = {};     // scale of these gradients; empty without a scaler
  bool skipped = false;                      // whether a non-finite gradient left the weights unchanged
};

// Properties of a process's replicas.
struct ProcessReplicas {
  // number of forward passes that Strategy::run() can make concurrently, one in each call
  int concurrent_forwards = 1;
  // Peak memory of each replica so far, in bytes, if the process tracks its memory; empty for a process that
  // is a replica itself.
  std::vector<std::uint64_t> peak_bytes = {};
};

// A model in training, distributed in any way over processes and devices. Methods are collective (all ranks
// call them in the same order) unless they are const. An object is used by one thread.
class Training {
 public:
  virtual ~Training() = default;

  // Constructs the optimizer, and sets the loss that train_step() minimises. Call it before the first step,
  // and again to change the optimizer.
  virtual void compile(OptimizerFactory optimizer, LossFunction loss) = 0;

  // Runs one optimizer step: forward, loss and backward of each batch of `window`, communication, clipping,
  // update. The gradient is that of the mean loss over the predictions of all batches of all replicas.
  // Replicas without data use batches without samples. All ranks have windows of the same length. Throws
  // UsageError if the model, the loss function and the batch do not fit each other, and CommunicationError if
  // a rank is lost.
  virtual StepResult train_step(std::span<const Batch> window, const StepSettings& settings) = 0;

  // Returns the model's outputs, for evaluation and prediction. Collective or not, as PreparedModel::parts()
  // was prepared for it.
  virtual Tensors forward(const Batch& batch) = 0;

  // Returns properties of this process's replicas.
  virtual ProcessReplicas process_replicas() const { return {}; }
  std::vector<std::uint64_t> replica_peak_bytes() const { return process_replicas().peak_bytes; }  // likewise

  // Returns this process's part of parameters, buffers and optimizer state after the last step. Collective.
  ShardedState state();
  // Continues with state that was written on all ranks into model() and optimizer(), or into the shards of
  // state(): for example a checkpoint of `steps` optimizer steps. Collective.
  virtual void state_loaded(std::int64_t steps);

  // Sends state that only the ranks `leaving` of the present world hold to staying ranks, which keep it until
  // rebuild(). The leaving ranks are not in the next world. Call it between steps; collective in the present
  // world, with the same list on all ranks. Throws UsageError for a list with other ranks or all ranks, and
  // for a training that does not support rebuild().
  virtual void hand_over(const std::vector<int>& leaving);
  // Starts a new membership epoch: training continues among the ranks of `context`, which may be others, more
  // or fewer than before. Call it between steps. Collective in the new world. A joining process has prepared
  // the same recipe in a world of its own.
  //
  // The newest state, by optimizer steps, is used; ties go to the largest world. Ranks that are behind, or
  // whose last step still waited for gradients, receive it from others. Parameters, buffers and the
  // optimizer's state are moved; communication state (error feedback) and random generators are reset.
  // Returns a rank that had the newest state; other state to continue from, such as the position in the data,
  // is there.
  //
  // Throws UsageError before anything changes if the strategy's options do not fit the world, and
  // MismatchError for ranks with different models. Throws DataError on all ranks if all holders of a part of
  // the state have left without hand_over(), naming the first such elements. The training is rebuilt then,
  // but does not step until state_loaded().
  virtual int rebuild(const Context& context);

  virtual const Model& model() const = 0;  // model of this process's first or only replica
  // Returns the optimizer of this process's parameters. Call it after compile().
  virtual torch::optim::Optimizer& optimizer() = 0;
  // Returns the rate of the first parameter group whose rate is not zero; 0 if all are zero.
  double learning_rate() { return rate_of(optimizer()); }
  virtual TrainingPrecision& precision() = 0;  // mixed precision of the training
  // Returns this process's replica of the model with its communication.
  virtual PreparedModel& prepared() = 0;
};

}  // namespace rondo
