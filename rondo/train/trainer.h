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
#include <vector>

#include "rondo/checkpoint/checkpoint.h"
#include "rondo/data/dataset.h"
#include "rondo/format/trace.h"
#include "rondo/models/model.h"
#include "rondo/precision/training_precision.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/strategy.h"
#include "rondo/train/callback.h"
#include "rondo/train/metric.h"
#include "rondo/train/optimizer.h"
#include "rondo/train/schedule.h"

namespace rondo {

class MemoryObserver;
enum class ForwardPasses;

using LossFunction = std::function<Loss(const at::Tensor& output, const at::Tensor& target)>;

struct FitOptions {
  // Length of the whole training, what a resumed run has done included: whichever of the two is given and
  // reached first. With neither, one epoch.
  std::optional<std::int64_t> epochs = {};
  std::optional<std::int64_t> steps = {};
  std::int64_t batch_size = 32;  // samples per rank and forward pass
  std::int64_t accumulate = 1;   // forward and backward passes per optimizer step
  bool shuffle = true;
  std::uint64_t seed = 0;  // of the order of samples
  LearningRateSchedule schedule = {};
  double clip_norm = 0;    // gradients are scaled down to this L2 norm over all parameters; 0 is never
  int loader_workers = 1;  // threads that read ahead

  std::shared_ptr<const Dataset> validation = {};
  std::int64_t validate_every =
      0;  // steps; 0 is at the end of each epoch. The end of training always validates
  std::int64_t validation_batch_size = 32;

  std::vector<std::shared_ptr<Callback>> callbacks = {};
  // Asked at every step on every rank; one rank's true ends training after the step on all of them. Any
  // thread's doing, for example a signal handler's flag.
  std::function<bool()> stop_requested = {};
  // Takes the timeline of the first `traced_steps` steps of this call, on each rank.
  std::function<void(TraceEvent)> trace = {};
  // Takes what this rank's memory was used for during these steps, where the process keeps books of it
  // (rondo/backend/accounting.h).
  std::function<void(const TraceCounter&)> trace_memory = {};
  std::int64_t traced_steps = 20;
};

struct EvaluateOptions {
  std::int64_t batch_size = 32;
};

// How far training is.
struct TrainingPosition {
  std::int64_t step = 0;   // optimizer steps done
  std::int64_t epoch = 0;  // current epoch, from 0
  std::int64_t batch = 0;  // global batches of the epoch that are done
  double elapsed_s = 0;
};

// Optimizer steps of a training of `samples` samples on `ranks` ranks, by options.epochs and options.steps.
std::int64_t total_steps(const FitOptions& options, std::int64_t samples, int ranks);

// Trains a model under a strategy: Keras' compile, fit, evaluate and predict for libtorch modules. All ranks
// make the same calls; one thread uses an object.
//
//   Trainer trainer(*strategy, model);
//   trainer.compile(optimizer_factory);                       // cross-entropy and loss metric by default
//   trainer.fit(train_data, {.epochs = 3, .validation = validation_data, .callbacks = {...}});
//   trainer.evaluate(*test_data)["loss"];
class Trainer {
 public:
  // `strategy` must outlive the trainer. The model moves to `device`, is cast as `precision` says and made
  // the same on all ranks. Throws UsageError for a precision that cannot be, or not with this strategy.
  Trainer(Strategy& strategy, Model model, c10::Device device = c10::kCPU,
          const PrecisionOptions& precision = {});
  // Any module with at::Tensor forward(at::Tensor).
  template <std::derived_from<torch::nn::Module> Module>
  Trainer(Strategy& strategy, std::shared_ptr<Module> module, c10::Device device = c10::kCPU,
          const PrecisionOptions& precision = {})
      : Trainer(strategy, as_model(std::move(module)), device, precision) {}
  template <class Impl>
  Trainer(Strategy& strategy, const torch::nn::ModuleHolder<Impl>& module, c10::Device device = c10::kCPU,
          const PrecisionOptions& precision = {})
      : Trainer(strategy, as_model(module.ptr()), device, precision) {}
  // The constructors above followed by compile().
  Trainer(Strategy& strategy, auto model, OptimizerFactory optimizer, LossFunction loss)
      : Trainer(strategy, std::move(model)) {
    compile(std::move(optimizer), std::move(loss));
  }
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Sets what fit and evaluate need; may be called again to go on with another optimizer.
  void compile(const OptimizerFactory& optimizer, LossFunction loss = cross_entropy,
               std::vector<Metric> metrics = {loss_metric()});

  // Trains from position() on. Throws UsageError for options that do not fit the data (on several ranks as an
  // AgreedError, see agreement.h), CommunicationError when a rank is lost.
  FitResult fit(const std::shared_ptr<const Dataset>& data, const FitOptions& options);

  // Figures over the whole of `data`, by name of metric: every sample counts once whatever the number of
  // ranks, in a fixed order of summation.
  std::map<std::string, double> evaluate(const Dataset& data, const EvaluateOptions& options = {});

  // The model's outputs for all of `data`, in its order, on every rank.
  at::Tensor predict(const Dataset& data, const EvaluateOptions& options = {});

  // Saves everything that training needs to continue as ROOT/step-NNNNNNNN, atomically, and deletes all but
  // the newest `keep` checkpoints of `root`. A failure on the writing rank is an Error on all of them.
  void save(const std::filesystem::path& root, int keep);
  // Continues from a checkpoint: a directory that save() wrote, a directory of such, or a run directory. At
  // the same world size training goes on bit for bit as if it had never stopped. Callback states reach the
  // next fit's callbacks. Throws DataError for a damaged checkpoint, or one of another model naming the first
  // tensor that differs.
  void restore(const std::filesystem::path& checkpoint);

  Strategy& strategy() const { return strategy_; }
  const Model& model() const { return model_; }
  torch::optim::Optimizer& optimizer();
  const TrainingPosition& position() const { return position_; }
  const TrainingPrecision& precision() const { return precision_; }
  // Operations of the last step.
  std::vector<CommunicationSpan> communication_spans() const;

 private:
  friend class FitLoop;

  template <class Module>
  static Model as_model(std::shared_ptr<Module> module) {
    Model model;
    model.name = module->name();
    model.config = nlohmann::json::object();
    model.forward = [raw = module.get()](const at::Tensor& input) { return raw->forward(input); };
    model.module = std::move(module);
    return model;
  }
  void require_compiled() const;
  // What a checkpoint holds, as it is on this rank.
  NamedTensors saved_tensors();
  NamedOptimizer saved_optimizer();
  // Collective.
  ForwardPasses prepare_forwards();

  Strategy& strategy_;
  Model model_;
  c10::Device device_;
  std::shared_ptr<MemoryObserver> memory_;  // null where the process keeps no books of its memory
  TrainingPrecision precision_;
  std::unique_ptr<PreparedModel> prepared_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  LossFunction loss_;
  std::vector<Metric> metrics_;
  TrainingPosition position_;
  std::vector<std::shared_ptr<Callback>> callbacks_;           // of the fit that is running
  nlohmann::json callback_states_ = nlohmann::json::object();  // restored, or of the last fit
  // What the position within an epoch refers to: samples, global_batch, seed, shuffle. Of the last fit, or
  // restored.
  nlohmann::json sampling_ = nlohmann::json::object();
  bool paused_ = false;  // something that is not training happened since the last step
};

}  // namespace rondo
