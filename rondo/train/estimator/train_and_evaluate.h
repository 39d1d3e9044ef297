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

// The Estimator pattern: one program is every process of a job (chief, worker, parameter server, evaluator),
// and finds its role in TF_CONFIG or is a rank of any launcher.
//
//   rondo::train_and_evaluate({.model = make_net, .compile = [](rondo::Trainer& trainer) {
//   trainer.compile(...); }},
//                             {.input = training_data, .fit = {.steps = 1000}}, {.input = evaluation_data},
//                             {.directory = "runs/a", .training_strategy = "ddp", .checkpoint_every = 100});
namespace rondo {

// The data of one worker: called once on each.
using InputFunction = std::function<std::shared_ptr<const Dataset>(const InputContext&)>;

// A model and what it is trained and judged by.
struct Estimator {
  ModelFactory model = {};                     // in float32; called once for each replica of a process
  std::function<void(Trainer&)> compile = {};  // calls Trainer::compile(); the same on all processes
};

// What a job trains on.
struct TrainSpec {
  // With fit.input_sharding data or automatic it gives all samples on every worker, each of which reads its
  // part of every batch; with off it gives those of its own pipeline, as many on each worker.
  InputFunction input = {};
  // How long, and with which callbacks. Validation is the EvalSpec's: fit.validation is not given.
  FitOptions fit = {};
};

// What a job is judged by.
struct EvalSpec {
  InputFunction input = {};       // all samples, of one pipeline, wherever they are evaluated
  EvaluateOptions evaluate = {};  // batch size and number of batches
};

// Where a job runs, and how it is spread.
struct RunConfig {
  // Of the run: checkpoints/, metrics.jsonl, metrics.evaluator.jsonl. All processes share it. One that holds
  // checkpoints already is continued from the newest.
  std::filesystem::path directory = {};
  std::string training_strategy = "auto";          // its name in `strategies`; auto: ddp on several processes
  OptionValues training_options = {};              // by name, as {"sync-period", "4"}
  std::string evaluation_strategy = "one_device";  // of the evaluator, which is one process
  OptionValues evaluation_options = {};            // by name
  std::int64_t checkpoint_every = 0;               // steps; 0: at the end of each epoch
  int keep = 3;                                    // newest checkpoints that stay
  // Whether a process of its own evaluates the checkpoints. Then the training ranks do not, as they do
  // otherwise with every checkpoint. Empty: as env::has_evaluator() says.
  std::optional<bool> has_evaluator = {};
  Duration patience = std::chrono::minutes(5);     // of an evaluator that waits for the training to begin
  InitOptions init = {};                           // of training ranks
  c10::Device device = c10::kCPU;                  // of the model
  PrecisionOptions precision = {};                 // what is computed in which dtype
  StrategyRegistry strategies = all_strategies();  // by name
};

// What a process was in its job.
enum class JobRole {
  trainer,    // a rank or a worker that trained
  server,     // a parameter server
  evaluator,  // evaluated checkpoints
};

// What a process knows in the end.
struct TrainAndEvaluateResult {
  JobRole role = JobRole::trainer;             // of this process
  FitResult fit = {};                          // of a trainer
  std::map<std::string, double> figures = {};  // of the last evaluation on this process; empty without one
  std::int64_t evaluated_step = -1;            // that they are of
};

// Does what this process's role asks. Training ranks train under RunConfig::training_strategy and save
// checkpoints; a parameter server serves until the workers have finished; an evaluator evaluates each
// checkpoint that is the newest when it looks, under RunConfig::evaluation_strategy, until the training has
// ended. Every process makes the same call. Throws UsageError for a specification that cannot be (as an
// AgreedError on several ranks), and what Trainer::fit and evaluate_checkpoints throw. A run that parameter
// servers hold is not continued: its directory must be without checkpoints.
TrainAndEvaluateResult train_and_evaluate(const Estimator& estimator, const TrainSpec& train,
                                          const EvalSpec& eval, const RunConfig& config);

}  // namespace rondo
