#pragma once

#include <c10/core/Device.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rondo/checkpoint/checkpoint.h"
#include "rondo/data/dataset.h"
#include "rondo/format/trace_span.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/model.h"
#include "rondo/nn/optimizers/optimizer.h"
#include "rondo/strategy/strategy.h"
#include "rondo/strategy/training.h"
#include "rondo/train/callback.h"
#include "rondo/train/metric.h"
#include "rondo/train/schedule.h"

namespace rondo {

class MemoryCheckpointSaver;
struct TrainerState;

// Options of writing a checkpoint.
struct SaveOptions {
  int keep = 3;  // number of newest checkpoints to keep, at least 1
  // Every rank writes its part of the state into files of its own (docs/formats.md), so that no rank needs
  // memory for the full model; all hosts share the directory. Otherwise rank 0 writes everything.
  bool in_parts = false;
  // The state is copied, and written while training continues. Implies in_parts.
  bool in_background = false;
  // Large tensors that equal those in the newest checkpoint of the directory become links to its files. Not
  // with the two options above.
  bool incremental = false;
  // Saves the weights that validations see, with WeightAverage the average; otherwise those that training
  // continues with.
  bool of_validation = false;
};

// Length, data and callbacks of a fit.
struct FitOptions {
  // Length of the whole training, including steps before a resume. If both are set, training ends at the one
  // that is reached first; if neither is set, after one epoch.
  std::optional<std::int64_t> epochs = {};
  std::optional<std::int64_t> steps = {};  // optimizer steps
  // Virtual epochs: an epoch ends (validation, callbacks, history) after this many optimizer steps,
  // independent of passes over the data; 0: an epoch is a pass.
  std::int64_t steps_per_epoch = 0;
  // First epoch of a training that has not begun, which determines the order of samples and the number of
  // steps.
  std::int64_t initial_epoch = 0;
  // Further steps after initial_epoch, for a process that rejoins a training that it was part of.
  std::int64_t initial_step = 0;
  std::int64_t batch_size = 32;  // samples per replica and forward pass
  std::int64_t accumulate = 1;   // forward and backward passes per optimizer step
  bool shuffle = true;           // whether each epoch has another order
  std::uint64_t seed = 0;        // seed of the order of samples
  // data: each process reads its part of every global batch. file: each reads files of its own. Either way an
  // epoch has every sample once; automatic chooses one of them (rondo/strategy/input_division.h). off: each
  // process reads everything, in an order of its own, and an epoch is a pass of one process.
  AutoShard input_sharding = AutoShard::data;
  // Function of the number of optimizer steps done, on any ranks. Empty: named_schedule, or else the
  // optimizer's own rates.
  LearningRateSchedule schedule = {};
  // Schedule by name, instead of `schedule`. With other ranks, batch size or accumulation it continues from
  // its position and reaches its end with the last step (SchedulePosition).
  std::optional<ScheduleOptions> named_schedule = {};
  double clip_norm = 0;    // limit of the gradients' L2 norm over all parameters; 0: no clipping
  int loader_threads = 1;  // number of threads that read ahead

  std::shared_ptr<const Dataset> validation = {};  // null: no validation
  // steps; 0: at the end of each epoch. The end of training always validates
  std::int64_t validate_every = 0;
  std::int64_t validation_batch_size = 32;  // samples per rank and forward pass
  std::int64_t validation_batches = 0;      // maximum number of these on all ranks together; 0: all

  std::vector<std::shared_ptr<Callback>> callbacks = {};  // the same on all ranks, in the same order
  // Returns whether to stop; called at every step and within validations on every rank. If it returns true on
  // any rank, training ends on all of them after the step, or at once in a validation. Set it on all ranks or
  // none. May read state that other threads set, such as a signal handler's flag.
  std::function<bool()> stop_requested = {};
  // Receives the timeline of `traced_steps` steps of this call, on each rank.
  std::function<void(TraceSpan)> trace = {};
  // Receives this rank's memory use during these steps, if the process tracks it
  // (rondo/backend/memory/tracked_memory.h).
  std::function<void(const TraceCounter&)> trace_memory = {};
  std::int64_t traced_steps = 20;  // for `trace` and `trace_memory`
  std::int64_t traced_after = 0;   // steps of this call before the first traced step
};

// Options of evaluating a data set.
struct EvaluateOptions {
  std::int64_t batch_size = 32;  // samples per rank and forward pass
  std::int64_t batches = 0;      // maximum number of batches on all ranks together; 0: all
  // For evaluate: returns whether to stop; called after batches. If it returns true on any rank, the
  // evaluation ends on all of them. Set it on all ranks or none.
  std::function<bool()> stop_requested = {};
  // For evaluate: called after batches with the number of finished batches on all ranks.
  std::function<void(std::int64_t batches, std::int64_t of)> progress = {};
};

// Progress of a training.
struct TrainingPosition {
  std::int64_t step = 0;   // optimizer steps done
  std::int64_t epoch = 0;  // current epoch, from 0
  std::int64_t batch = 0;  // finished global batches of the epoch
  double elapsed_s = 0;    // training time in all runs together
};

// Sums over the finished steps of an epoch, on all ranks together.
struct EpochSums {
  std::int64_t epoch = 0;        // from 0, in the callbacks' numbering
  double loss = 0;               // sum over the predictions
  std::int64_t predictions = 0;  // number of predictions in `loss`
  std::int64_t samples = 0;      // number of trained samples
};

// Latest figures of a training, for a resumed run.
struct LastFigures {
  std::optional<double> loss = {};                // loss of the last step
  std::map<std::string, double> validation = {};  // figures by name of metric
  std::int64_t validated_step = -1;               // step of `validation`
  bool validation_due = false;                    // due after the last step, but a request to stop came first
  EpochSums epoch = {};                           // sums of the current epoch
};

// A rank's weights and buffers of a model in training: its shards, if they are sharded.
using WeightsCopy = std::vector<Shard>;

// Returns the optimizer steps of a training with `samples` samples on `replicas` replicas
// (Strategy::num_replicas_in_sync), by options.epochs and options.steps.
std::int64_t total_steps(const FitOptions& options, std::int64_t samples, int replicas);

// A trainer of a model under a strategy, with Keras' compile, fit, evaluate and predict for libtorch modules.
// All ranks make the same calls; an object is used by one thread.
//
//   Trainer trainer(*strategy, model);
//   trainer.compile(optimizer_factory);                       // cross-entropy and loss metric by default
//   trainer.fit(train_data, {.epochs = 3, .validation = validation_data, .callbacks = {...}});
//   trainer.evaluate(*test_data)["loss"];
class Trainer {
 public:
  // `strategy` must outlive the trainer; a later call that needs it throws UsageError. Models of `factory`
  // move to `device`, are cast as `precision` requires and get the same values on all ranks. Throws
  // UsageError for an invalid precision, or one that the strategy does not support. (Module holders are
  // callable, but excluded here, before their result type is instantiated.)
  template <class Factory>
  requires(!torch::detail::is_module_holder<Factory>::value && std::constructible_from<ModelFactory, Factory>)
      Trainer(Strategy& strategy, Factory factory, c10::Device device = c10::kCPU,
              const PrecisionOptions& precision = {})
      : Trainer(std::in_place, strategy, ModelFactory(std::move(factory)), device, precision) {}
  // Takes an existing model, for strategies with one replica per process. Its forward may be any function of
  // tensors: Model{.module = net, .forward = [net](at::Tensor ids, at::Tensor mask) { ... }}.
  Trainer(Strategy& strategy, Model model, c10::Device device = c10::kCPU,
          const PrecisionOptions& precision = {})
      : Trainer(strategy, only(std::move(model)), device, precision) {}
  // Takes any module whose forward takes one to six tensors, in the order of a batch's inputs.
  template <std::derived_from<torch::nn::Module> Module>
  Trainer(Strategy& strategy, std::shared_ptr<Module> module, c10::Device device = c10::kCPU,
          const PrecisionOptions& precision = {})
      : Trainer(strategy, as_model(std::move(module)), device, precision) {}
  // Takes a module holder (TORCH_MODULE).
  template <class Impl>
  Trainer(Strategy& strategy, const torch::nn::ModuleHolder<Impl>& module, c10::Device device = c10::kCPU,
          const PrecisionOptions& precision = {})
      : Trainer(strategy, as_model(module.ptr()), device, precision) {}
  // Takes a TorchScript module.
  Trainer(Strategy& strategy, const torch::jit::Module& module, c10::Device device = c10::kCPU,
          const PrecisionOptions& precision = {})
      : Trainer(strategy, as_model(module), device, precision) {}
  // Calls a constructor above, then compile().
  Trainer(Strategy& strategy, auto model, OptimizerFactory optimizer, LossFunction loss)
      : Trainer(strategy, std::move(model)) {
    compile(std::move(optimizer), std::move(loss));
  }
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Sets the optimizer, loss and metrics of fit and evaluate. May be called again to change the optimizer.
  void compile(OptimizerFactory optimizer, LossFunction loss = cross_entropy,
               std::vector<Metric> metrics = {loss_metric()});
  // Sets an optimizer by name: compile(OptimizerOptions{.name = "lamb", .weight_decay = 0.01, .decayed =
  // Decayed::matrices}). These options also apply after restore(), which then loads the optimizer's state
  // from the checkpoint, but not its weight decay, momentum and other options.
  void compile(OptimizerOptions optimizer, LossFunction loss = cross_entropy,
               std::vector<Metric> metrics = {loss_metric()});

  // Trains from position() on. Logs a warning if that is already the end. Throws UsageError for options that
  // do not fit the data, and for arguments that differ between ranks; on several ranks it is an AgreedError
  // (agreement.h). Throws CommunicationError if a rank is lost.
  FitResult fit(const std::shared_ptr<const Dataset>& data, const FitOptions& options);

  // Runs one optimizer step on this rank's batch, of any size: the gradient is that of the mean over the
  // predictions of all ranks. Collective, in training mode. Does not call callbacks or change the position
  // within an epoch.
  StepRecord train_on_batch(const Batch& batch, double clip_norm = 0);

  // Returns figures over the whole of `data` (or options.batches of it), by name of metric. Every sample
  // counts once for any number of ranks, in a fixed order of summation. Empty if options.stop_requested ended
  // it. Throws UsageError, naming a metric, for data without a sample.
  std::map<std::string, double> evaluate(const Dataset& data, const EvaluateOptions& options = {});

  // Returns the model's outputs for all of `data` (or options.batches of it), in order, on every rank. For a
  // model with one output.
  at::Tensor predict(const Dataset& data, const EvaluateOptions& options = {});

  // Returns each output of a model with several, likewise.
  Tensors predict_all(const Dataset& data, const EvaluateOptions& options = {});

  // Saves all state that training needs to continue as ROOT/step-NNNNNNNN, atomically, and deletes all but
  // the newest `keep` checkpoints of `root`. Throws Error on all ranks if the writing rank fails.
  void save(const std::filesystem::path& root, int keep) { save(root, SaveOptions{.keep = keep}); }
  // Saves with further options: written by all ranks at once or while training continues (SaveOptions).
  void save(const std::filesystem::path& root, const SaveOptions& options);
  // Returns the options of the current save(), for before_save() and after_save(). Null for MemoryCheckpoint,
  // which requests states and writes no checkpoint.
  const SaveOptions* save_options() const;
  // Blocks until a background checkpoint is complete on disk. Collective. Throws AgreedError if it could not
  // be written.
  void finish_save();
  // Continues from a checkpoint: a directory that save() wrote, its parent directory, or a run directory. At
  // the same world size training is bit-identical to an uninterrupted one. Callback states are given once, to
  // the next fit's callbacks. Throws DataError for a damaged checkpoint, and for another model, naming the
  // first tensor that differs.
  void restore(const std::filesystem::path& checkpoint);

  // Allows restore() to read libtorch's archive of an optimizer that optimizer_fields.h lacks, such as LBFGS.
  // The archive may run code of the checkpoint. Without this call restore() throws UsageError for such a
  // checkpoint.
  void trust_archives();

  // Loads only the weights of a checkpoint as in restore(); optimizer and position do not change. Collective.
  void load_weights(const std::filesystem::path& checkpoint);
  // Returns this rank's part of weights and buffers after the last step: the training's own tensors.
  // Collective.
  WeightsCopy weights();
  // Returns copies of weights(), for put_weights() in the same world. Collective.
  WeightsCopy copy_weights();
  // Writes copies back. Collective.
  void put_weights(const WeightsCopy& weights);
  // Writes copies back with the figures of their validation, which become the fit's last figures if it ends
  // with these weights.
  void put_weights(const WeightsCopy& weights, std::map<std::string, double> validation);
  // Returns the number of times that put_weights(), load_weights() and restore() have replaced the weights.
  // Callbacks use it to detect weights that are not the result of training alone.
  std::int64_t times_replaced() const;
  // Makes the model use `weights` until show_trained_weights(), which returns whether it restored anything.
  // Meanwhile the training's own weights are kept, with its strategy's other state (local_sgd: each rank's
  // replica). Training without that call continues with the shown weights. Collective, in one world. Not
  // supported with parameter servers, whose weights are those of all workers.
  void show_weights(const WeightsCopy& weights);
  bool show_trained_weights();  // likewise
  // Returns copies of the weights of a checkpoint as in restore(); the training keeps its own. Likewise.
  WeightsCopy weights_of(const std::filesystem::path& checkpoint);

  // Prepares a rebuild(): the ranks `leaving` of the present world send state that only they hold to the
  // others. Call it between calls of fit; collective in the present world (Training::hand_over).
  void hand_over(const std::vector<int>& leaving);
  // Continues among the ranks of `context`, a new membership epoch, together with strategy(). Collective in
  // the new world. A joining process calls it on a Trainer of the same model and optimizer in a world of its
  // own. State moves as in Training::rebuild; position, figures and callback states come from a rank with the
  // newest state. Finished samples of the epoch stay finished: the next fit divides the rest of the epoch
  // among the new ranks, every sample once. Throws as Training::rebuild does; after its DataError call
  // restore() with a checkpoint.
  void rebuild(const Context& context);

  // Returns the strategy that the trainer was made with. Throws UsageError if it has ended.
  Strategy& strategy() const;
  // Returns the model in training; its parameters are those that forward uses.
  const Model& model() const;
  // Throws UsageError before compile().
  torch::optim::Optimizer& optimizer();
  const TrainingPosition& position() const;  // position of the next step
  // Returns the mixed precision of the training.
  const TrainingPrecision& precision() const;
  // Returns Training::replica_peak_bytes().
  std::vector<std::uint64_t> replica_peak_bytes() const;
  // Returns the communication spans of the last step.
  std::vector<TraceSpan> communication_spans() const;

 private:
  friend void save_in_memory(Trainer& trainer, MemoryCheckpointSaver& saver);

  Trainer(std::in_place_t, Strategy& strategy, ModelFactory factory, c10::Device device,
          const PrecisionOptions& precision);

  std::unique_ptr<TrainerState> state_;  // never null
};

}  // namespace rondo
