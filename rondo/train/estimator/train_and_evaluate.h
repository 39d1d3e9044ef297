#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rondo/backend/context.h"
#include "rondo/base/time.h"
#include "rondo/data/dataset.h"
#include "rondo/nn/model.h"
#include "rondo/options/option.h"
#include "rondo/parallel/registry.h"
#include "rondo/precision/options.h"
#include "rondo/strategy/distributed_dataset.h"
#include "rondo/train/callback.h"
#include "rondo/train/trainer.h"

// The Estimator pattern: every process of a job (chief, worker, parameter server, evaluator) runs one
// program. It finds its role in TF_CONFIG, or is a rank of any launcher.
//
//   rondo::train_and_evaluate({.model = make_net, .compile = [](rondo::Trainer& trainer) {
//   trainer.compile(...); }},
//                             {.input = training_data, .fit = {.steps = 1000}}, {.input = evaluation_data},
//                             {.directory = "runs/a", .training_strategy = "ddp", .checkpoint_every = 100});
namespace rondo {

// Returns the data of one worker; called once on each.
using InputFunction = std::function<std::shared_ptr<const Dataset>(const InputContext&)>;

// A model with its training and evaluation functions.
struct Estimator {
  ModelFactory model = {};                     // in float32; called once for each replica of a process
  std::function<void(Trainer&)> compile = {};  // calls Trainer::compile(); the same on all processes
};

// Training data and options of a job.
struct TrainSpec {
  // With fit.input_sharding data or automatic it returns all samples on every worker, and each worker reads
  // its part of every batch. With off it returns the samples of its own pipeline, the same number on each
  // worker.
  InputFunction input = {};
  // Length and callbacks. fit.validation must not be set: EvalSpec provides the data.
  FitOptions fit = {};
};

// Evaluation data and options of a job.
struct EvalSpec {
  InputFunction input = {};       // all samples, of one pipeline
  EvaluateOptions evaluate = {};  // batch size and number of batches
};

// Directory, strategies and resources of a job.
struct RunConfig {
  // Run directory with checkpoints/, metrics.jsonl and metrics.evaluator.jsonl, which all processes share. A
  // run with checkpoints continues from the newest one.
  std::filesystem::path directory = {};
  std::string training_strategy = "auto";          // name in `strategies`; auto: ddp on several processes
  OptionValues training_options = {};              // by name, for example {"sync-period", "4"}
  std::string evaluation_strategy = "one_device";  // strategy of the evaluator, which is one process
  OptionValues evaluation_options = {};            // by name
  std::int64_t checkpoint_every = 0;               // steps; 0: at the end of each epoch
  int keep = 3;                                    // number of newest checkpoints to keep
  // Whether a separate process evaluates the checkpoints. If not, the training ranks evaluate every
  // checkpoint. Empty: env::has_evaluator() decides.
  std::optional<bool> has_evaluator = {};
  Duration patience = std::chrono::minutes(5);     // longest wait of an evaluator for the training to begin
  InitOptions init = {};                           // for training ranks
  c10::Device device = c10::kCPU;                  // device of the model
  PrecisionOptions precision = {};                 // dtypes of the computation
  StrategyRegistry strategies = all_strategies();  // available strategies
};

// Role of a process in its job.
enum class JobRole {
  trainer,    // a rank or a worker that trained
  server,     // a parameter server
  evaluator,  // evaluated checkpoints
};

// Result on one process.
struct TrainAndEvaluateResult {
  JobRole role = JobRole::trainer;             // role of this process
  FitResult fit = {};                          // set for a trainer
  std::map<std::string, double> figures = {};  // last evaluation on this process; empty without one
  std::int64_t evaluated_step = -1;            // step of `figures`
};

// Runs this process's role. Training ranks train under RunConfig::training_strategy and save checkpoints. A
// parameter server serves until the workers have finished. An evaluator polls for the newest checkpoint and
// evaluates it under RunConfig::evaluation_strategy, until the training has ended. Every process makes the
// same call. Throws UsageError for an invalid specification (as an AgreedError on several ranks), and the
// exceptions of Trainer::fit and evaluate_checkpoints. Runs on parameter servers cannot be continued: their
// directory must not contain checkpoints.
TrainAndEvaluateResult train_and_evaluate(const Estimator& estimator, const TrainSpec& train,
                                          const EvalSpec& eval, const RunConfig& config);

}  // namespace rondo
