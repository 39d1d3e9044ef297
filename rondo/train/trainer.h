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

class ReplicaSaver;
struct TrainerState;

// How a checkpoint is written.
struct SaveOptions {
  int keep = 3;  // newest checkpoints that stay, at least 1
  // Every rank writes what it has of the state into files of its own (docs/formats.md), so that no rank needs
  // room for the full model; all hosts share the directory. Else rank 0 writes all.
  bool in_parts = false;
  // The state is copied, and written while training goes on. Implies in_parts.
  bool in_background = false;
  // Large tensors that are as in the newest checkpoint of the directory become links to its files. Not with
  // the two above.
  bool incremental = false;
  // Of the weights that validations see, which with WeightAverage are the average's; else of those that
  // training goes on with.
  bool of_validation = false;
};

// How long fit() trains, on what, and what happens alongside.
struct FitOptions {
  // Length of the whole training, what a resumed run has done included: whichever of the two is given and
  // reached first. With neither, one epoch.
  std::optional<std::int64_t> epochs = {};
  std::optional<std::int64_t> steps = {};  // optimizer steps
  // Virtual epochs: every so many optimizer steps an epoch ends (validation, callbacks, history), wherever
  // the pass over the data is; 0: an epoch is a pass.
  std::int64_t steps_per_epoch = 0;
  // The epoch that a training begins with which has done none: its order of samples, its number of steps.
  std::int64_t initial_epoch = 0;
  // The same with so many steps more: of a process that others have known before, and that goes on among
  // them.
  std::int64_t initial_step = 0;
  std::int64_t batch_size = 32;  // samples per replica and forward pass
  std::int64_t accumulate = 1;   // forward and backward passes per optimizer step
  bool shuffle = true;           // another order in every epoch
  std::uint64_t seed = 0;        // of the order of samples
  // data: each process reads its part of every global batch. file: each reads files of its own. Either way
  // an epoch has every sample once; automatic chooses (rondo/strategy/input_division.h). off: each reads
  // everything, in an order of its own, and an epoch is a pass of one process.
  AutoShard input_sharding = AutoShard::data;
  // A function of the optimizer steps done, whatever ranks they were done on. Empty: named_schedule, and
  // without that the optimizer keeps its rates.
  LearningRateSchedule schedule = {};
  // A schedule by name, instead of `schedule`. On other ranks, with another batch size or accumulation it
  // goes on from where it was, and reaches its end with the last step (SchedulePosition).
  std::optional<ScheduleOptions> named_schedule = {};
  double clip_norm = 0;    // gradients are scaled down to this L2 norm over all parameters; 0 is never
  int loader_threads = 1;  // that read ahead

  std::shared_ptr<const Dataset> validation = {};  // null: no validation
  std::int64_t validate_every =
      0;  // steps; 0 is at the end of each epoch. The end of training always validates
  std::int64_t validation_batch_size = 32;  // samples per rank and forward pass
  std::int64_t validation_batches = 0;      // at most so many of them, of all ranks together; 0 is all

  std::vector<std::shared_ptr<Callback>> callbacks = {};  // the same on all ranks, in the same order
  // Asked at every step and within validations on every rank; one rank's true ends training after the step,
  // or at once in the validation, on all of them. Given on all ranks or none. Any thread's doing, for example
  // a signal handler's flag.
  std::function<bool()> stop_requested = {};
  // Takes the timeline of `traced_steps` steps of this call, on each rank.
  std::function<void(TraceSpan)> trace = {};
  // Takes what this rank's memory was used for during these steps, where the process tracks it
  // (rondo/backend/memory/tracked_memory.h).
  std::function<void(const TraceCounter&)> trace_memory = {};
  std::int64_t traced_steps = 20;  // for `trace` and `trace_memory`
  std::int64_t traced_after = 0;   // steps of this call before the first of them
};

// How a data set is evaluated.
struct EvaluateOptions {
  std::int64_t batch_size = 32;  // samples per rank and forward pass
  std::int64_t batches = 0;      // only the first so many, of all ranks together; 0 is all
  // evaluate: asked after batches; one rank's true ends the evaluation on all of them. On all ranks or none.
  std::function<bool()> stop_requested = {};
  // evaluate: told after batches how many of all ranks' are done.
  std::function<void(std::int64_t batches, std::int64_t of)> progress = {};
};

// How far training is.
struct TrainingPosition {
  std::int64_t step = 0;   // optimizer steps done
  std::int64_t epoch = 0;  // current epoch, from 0
  std::int64_t batch = 0;  // global batches of the epoch that are done
  double elapsed_s = 0;    // of training, in all runs together
};

// Sums over the steps of an epoch so far, on all ranks together.
struct EpochSums {
  std::int64_t epoch = 0;        // from 0, by the numbers that callbacks are told
  double loss = 0;               // over the predictions
  std::int64_t predictions = 0;  // that `loss` is of
  std::int64_t samples = 0;      // that were trained on
};

// What training has shown last, for a run that is resumed.
struct LastFigures {
  std::optional<double> loss = {};                // of the last step
  std::map<std::string, double> validation = {};  // figures by name of metric
  std::int64_t validated_step = -1;               // that `validation` is of
  bool validation_due = false;                    // after the last step, and a request to stop came first
  EpochSums epoch = {};                           // of the epoch that is under way
};

// The weights and buffers that a rank has of a model in training: its shards, where it has those.
using WeightsCopy = std::vector<Shard>;

// Optimizer steps of a training of `samples` samples on `replicas` replicas (Strategy::num_replicas_in_sync),
// by options.epochs and options.steps.
std::int64_t total_steps(const FitOptions& options, std::int64_t samples, int replicas);

// Trains a model under a strategy: Keras' compile, fit, evaluate and predict for libtorch modules. All ranks
// make the same calls; one thread uses an object.
//
//   Trainer trainer(*strategy, model);
//   trainer.compile(optimizer_factory);                       // cross-entropy and loss metric by default
//   trainer.fit(train_data, {.epochs = 3, .validation = validation_data, .callbacks = {...}});
//   trainer.evaluate(*test_data)["loss"];
class Trainer {
 public:
  // `strategy` must outlive the trainer; a call that needs it after its end throws
  // UsageError. Models that `factory` makes move to `device`, are cast as
  // `precision` says and made the same on all ranks. Throws UsageError for a precision that cannot be, or not
  // with this strategy.
  // (A module holder is none, though it can be called: whether it gives a Model must not even be asked.)
  template <class Factory>
  requires(!torch::detail::is_module_holder<Factory>::value && std::constructible_from<ModelFactory, Factory>)
      Trainer(Strategy& strategy, Factory factory, c10::Device device = c10::kCPU,
              const PrecisionOptions& precision = {})
      : Trainer(std::in_place, strategy, ModelFactory(std::move(factory)), device, precision) {}
  // A model that exists, for strategies with one replica a process. Its forward may be any function of
  // tensors: Model{.module = net, .forward = [net](at::Tensor ids, at::Tensor mask) { ... }}.
  Trainer(Strategy& strategy, Model model, c10::Device device = c10::kCPU,
          const PrecisionOptions& precision = {})
      : Trainer(strategy, only(std::move(model)), device, precision) {}
  // Any module whose forward takes one to six tensors, in the order of a batch's inputs.
  template <std::derived_from<torch::nn::Module> Module>
  Trainer(Strategy& strategy, std::shared_ptr<Module> module, c10::Device device = c10::kCPU,
          const PrecisionOptions& precision = {})
      : Trainer(strategy, as_model(std::move(module)), device, precision) {}
  // Of a module holder (TORCH_MODULE).
  template <class Impl>
  Trainer(Strategy& strategy, const torch::nn::ModuleHolder<Impl>& module, c10::Device device = c10::kCPU,
          const PrecisionOptions& precision = {})
      : Trainer(strategy, as_model(module.ptr()), device, precision) {}
  // Of a TorchScript module.
  Trainer(Strategy& strategy, const torch::jit::Module& module, c10::Device device = c10::kCPU,
          const PrecisionOptions& precision = {})
      : Trainer(strategy, as_model(module), device, precision) {}
  // The constructors above followed by compile().
  Trainer(Strategy& strategy, auto model, OptimizerFactory optimizer, LossFunction loss)
      : Trainer(strategy, std::move(model)) {
    compile(std::move(optimizer), std::move(loss));
  }
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Sets what fit and evaluate need; may be called again to go on with another optimizer.
  void compile(OptimizerFactory optimizer, LossFunction loss = cross_entropy,
               std::vector<Metric> metrics = {loss_metric()});
  // The same of an optimizer by name: compile(OptimizerOptions{.name = "lamb", .weight_decay = 0.01, .decayed
  // = Decayed::matrices}). These options also count after restore(): of the checkpoint's optimizer they take
  // over what it remembers, and not its weight decay, momentum and the like.
  void compile(OptimizerOptions optimizer, LossFunction loss = cross_entropy,
               std::vector<Metric> metrics = {loss_metric()});

  // Trains from position() on. Says so in a warning when that is the end already. Throws UsageError for
  // options that do not fit the data, and for arguments that differ between ranks (on several ranks as an
  // AgreedError, see agreement.h), CommunicationError when a rank is lost.
  FitResult fit(const std::shared_ptr<const Dataset>& data, const FitOptions& options);

  // One optimizer step on this rank's batch, of any size: the gradient is that of the mean over the
  // predictions of all ranks. Collective, in training mode; callbacks are not told, and the position within
  // an epoch stays.
  StepRecord train_on_batch(const Batch& batch, double clip_norm = 0);

  // Figures over the whole of `data` (or options.batches of it), by name of metric: every sample counts once
  // whatever the number of ranks, in a fixed order of summation. Empty when options.stop_requested ended it.
  // Throws UsageError, which names a metric, for data without a sample.
  std::map<std::string, double> evaluate(const Dataset& data, const EvaluateOptions& options = {});

  // The model's outputs for all of `data` (or options.batches of it), in its order, on every rank: of a model
  // with one output.
  at::Tensor predict(const Dataset& data, const EvaluateOptions& options = {});

  // The same, each output of a model with several.
  Tensors predict_all(const Dataset& data, const EvaluateOptions& options = {});

  // Saves everything that training needs to continue as ROOT/step-NNNNNNNN, atomically, and deletes all but
  // the newest `keep` checkpoints of `root`. A failure on the writing rank is an Error on all of them.
  void save(const std::filesystem::path& root, int keep) { save(root, SaveOptions{.keep = keep}); }
  // The same, written by all ranks at once or while training goes on (SaveOptions).
  void save(const std::filesystem::path& root, const SaveOptions& options);
  // Of the save() under way, for before_save() and after_save(). Null for MemoryReplica, which asks for
  // states and writes no checkpoint.
  const SaveOptions* save_options() const;
  // Waits until a checkpoint that is being written in the background is complete and on the disk. Collective.
  // Throws AgreedError when it could not be written.
  void finish_save();
  // Continues from a checkpoint: a directory that save() wrote, a directory of such, or a run directory. At
  // the same world size training goes on bit for bit as if it had never stopped. Callback states reach the
  // next fit's callbacks, once. Throws DataError for a damaged checkpoint, or one of another model naming the
  // first tensor that differs.
  void restore(const std::filesystem::path& checkpoint);

  // Of an optimizer that rondo does not know a checkpoint has libtorch's archive, and reading that may run
  // code of the checkpoint: restore() is a UsageError until this was called.
  void trust_archives();

  // The weights alone of a checkpoint as restore() takes it; optimizer and position stay. Collective.
  void load_weights(const std::filesystem::path& checkpoint);
  // What this rank has of the weights and buffers after the last step: the training's own tensors.
  // Collective.
  WeightsCopy weights();
  // Copies of them, and back: in the same world. Collective.
  WeightsCopy copy_weights();
  void put_weights(const WeightsCopy& weights);  // likewise
  // The same with the figures of their validation: they are a fit's last, if it ends with these weights.
  void put_weights(const WeightsCopy& weights, std::map<std::string, double> validation);
  // How many times put_weights(), load_weights() and restore() have replaced the weights. A callback that
  // remembers it knows whether they come from training alone.
  std::int64_t times_replaced() const;
  // The model has `weights` until show_trained_weights(), which says whether there was something to put back;
  // meanwhile the training's own are kept, with all that its strategy remembers besides (local_sgd: each
  // rank's replica). A training that goes on without it goes on with what is shown. Collective, in one world;
  // not where parameter servers hold the weights, which are those of all workers.
  void show_weights(const WeightsCopy& weights);
  bool show_trained_weights();  // likewise
  // Copies of the weights of a checkpoint as restore() takes it; the training keeps its own. Likewise.
  WeightsCopy weights_of(const std::filesystem::path& checkpoint);

  // Before a rebuild(): the ranks `leaving` of the present world give what only they hold to the others.
  // Between calls of fit; collective in the present world (Training::hand_over).
  void hand_over(const std::vector<int>& leaving);
  // Goes on among the ranks of `context`, a new membership epoch; strategy() goes along. Collective in the
  // new world, where a process that joins calls it on a Trainer of the same model and optimizer in a world
  // of its own. State moves as Training::rebuild says; position, figures and callback states come from the
  // ranks with the newest state. The samples of the epoch that are done stay done: the next fit deals the
  // rest of the epoch's order out among the new ranks, every sample once. Throws as Training::rebuild does;
  // after its DataError restore() a checkpoint.
  void rebuild(const Context& context);

  // Returns the strategy that the trainer was made with. Throws UsageError if it has ended.
  Strategy& strategy() const;
  // In training; its parameters are those that forward uses.
  const Model& model() const;
  // Throws UsageError before compile().
  torch::optim::Optimizer& optimizer();
  const TrainingPosition& position() const;  // of the next step
  // What is computed in which dtype.
  const TrainingPrecision& precision() const;
  // As Training::replica_peak_bytes().
  std::vector<std::uint64_t> replica_peak_bytes() const;
  // Operations of the last step.
  std::vector<TraceSpan> communication_spans() const;

 private:
  friend void replicate(Trainer& trainer, ReplicaSaver& replica);

  Trainer(std::in_place_t, Strategy& strategy, ModelFactory factory, c10::Device device,
          const PrecisionOptions& precision);

  std::unique_ptr<TrainerState> state_;  // never null
};

}  // namespace rondo
