#include "rondo/train/estimator/train_and_evaluate.h"

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/env/cluster.h"
#include "rondo/format/checkpoint_files.h"
#include "rondo/format/run_directory.h"
#include "rondo/server/task.h"
#include "rondo/train/agreement.h"
#include "rondo/train/callbacks/metrics_log.h"
#include "rondo/train/callbacks/model_checkpoint.h"
#include "rondo/train/evaluate_checkpoints.h"
#include "rondo/train/training_place.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

void check_specification(const Estimator& estimator, const TrainSpec& train, const EvalSpec& eval,
                         const RunConfig& config) {
  const auto needed = [](bool given, const char* what) {
    if (!given) throw UsageError(str("train_and_evaluate: ", what, " is not given"));
  };
  needed(static_cast<bool>(estimator.model), "Estimator::model");
  needed(static_cast<bool>(estimator.compile), "Estimator::compile");
  needed(static_cast<bool>(train.input), "TrainSpec::input");
  needed(static_cast<bool>(eval.input), "EvalSpec::input");
  needed(!config.directory.empty(), "RunConfig::directory");
  if (train.fit.validation != nullptr)
    throw UsageError("train_and_evaluate: TrainSpec::fit.validation is given; its data is EvalSpec::input's");
}

std::shared_ptr<const Dataset> data_of(const InputFunction& input, const InputContext& context,
                                       const char* name) {
  auto data = input(context);
  if (data == nullptr) throw UsageError(str("train_and_evaluate: ", name, " gave no data"));
  return data;
}

// Creates an evaluator's strategy, which has one process.
std::unique_ptr<Strategy> evaluation_strategy(const RunConfig& config, const Context& context) {
  const std::string& name = config.strategies.resolve(config.evaluation_strategy);
  if (config.strategies.declaration(name).worker != ServedWorker::none)
    throw UsageError(str("RunConfig::evaluation_strategy ", name, ": an evaluator has no parameter servers"));
  return config.strategies.make(name, context, config.evaluation_options);
}

TrainAndEvaluateResult evaluate_as_evaluator(const Estimator& estimator, const EvalSpec& eval,
                                             const RunConfig& config,
                                             const std::function<bool()>& stop_requested) {
  log::set_prefix("evaluator");
  const Context context = init({.init_method = "alone"});
  const auto strategy = evaluation_strategy(config, context);
  const auto data = data_of(eval.input, {}, "EvalSpec::input");
  Trainer trainer(*strategy, estimator.model, config.device, config.precision);
  estimator.compile(trainer);
  CheckpointEvaluation last = evaluate_checkpoints(trainer, *data,
                                                   {.run = config.directory,
                                                    .evaluate = eval.evaluate,
                                                    .patience = config.patience,
                                                    .stop_requested = stop_requested});
  return {.role = JobRole::evaluator, .figures = std::move(last.figures), .evaluated_step = last.step};
}

// Checks that workers with samples of their own pipelines have the same number of them.
void check_own_inputs(const Context& context, const Dataset& data) {
  const std::vector<nlohmann::json> sizes = all_gather_object(data.size(), context.world());
  for (std::size_t rank = 1; rank < sizes.size(); ++rank) {
    if (sizes[rank] == sizes[0]) continue;
    throw AgreedError(
        str("train_and_evaluate: with input_sharding off each worker's input has as many samples, "
            "and rank 0's has ",
            sizes[0].dump(), ", rank ", rank, "'s ", sizes[rank].dump()),
        ExitCode::usage, context.rank() == 0);
  }
}

// Returns the checkpoint to continue from; empty for a new run. Rank 0's disk decides for all ranks.
std::string checkpoint_to_continue(const Context& context, const TrainingPlace& place, const fs::path& root) {
  std::string found;
  run_agreed(context, [&] {
    if (!place.writes || context.rank() != 0) return;
    const auto newest = newest_checkpoint(root);
    if (!newest) return;
    if (place.is_served) {
      throw UsageError(str(root.string(), " holds checkpoints up to step ", newest->step,
                           "; what parameter servers hold begins in a directory without any"));
    }
    found = newest->path.string();
  });
  return broadcast_object(found, context.world()).get<std::string>();
}

}  // namespace

TrainAndEvaluateResult train_and_evaluate(const Estimator& estimator, const TrainSpec& train,
                                          const EvalSpec& eval, const RunConfig& config) {
  check_specification(estimator, train, eval, config);
  const env::EnvironmentMap environment = env::process_environment();
  if (env::is_evaluator(environment))
    return evaluate_as_evaluator(estimator, eval, config, train.fit.stop_requested);

  std::string name = config.training_strategy;
  if (name != "auto") name = config.strategies.resolve(name);
  const ServedWorker worker = worker_of(config.strategies.declarations(), name);
  if (worker != ServedWorker::none) {
    const auto cluster = env::read_cluster(environment);
    if (cluster && cluster->is_server) {
      server::run_task(*cluster);
      return {.role = JobRole::server};
    }
  }
  InitOptions own = config.init;
  const TrainingPlace place = training_place(worker, config.training_options, own);
  Context context = init(own);
  if (name == "auto") name = context.world_size() > 1 ? "ddp" : "one_device";
  const auto strategy = config.strategies.make(name, context, config.training_options);

  const InputShard shard = strategy->input_shard();
  FitOptions fit = train.fit;
  const bool evaluates =
      !config.has_evaluator.value_or(env::has_evaluator(environment)) && !place.only_trains();
  std::shared_ptr<const Dataset> data;
  std::shared_ptr<RunLock> lock;
  const fs::path checkpoints = config.directory / "checkpoints";
  run_agreed(context, [&] {
    data = data_of(train.input,
                   {.input_pipeline_id = shard.index,
                    .num_input_pipelines = shard.count,
                    .num_replicas_in_sync = strategy->num_replicas_in_sync()},
                   "TrainSpec::input");
    if (evaluates) fit.validation = data_of(eval.input, {}, "EvalSpec::input");
    if (place.writes && context.rank() == 0) lock = std::make_shared<RunLock>(config.directory);
  });
  if (fit.input_sharding == AutoShard::off && !place.is_served) check_own_inputs(context, *data);
  const std::string from = checkpoint_to_continue(context, place, checkpoints);

  Trainer trainer(*strategy, estimator.model, config.device, config.precision);
  estimator.compile(trainer);
  if (!from.empty()) trainer.restore(from);
  if (place.is_served) fit.initial_step = steps_done_before(*strategy);
  if (evaluates) {
    if (fit.validate_every == 0) fit.validate_every = config.checkpoint_every;
    fit.validation_batch_size = eval.evaluate.batch_size;
    fit.validation_batches = eval.evaluate.batches;
  }
  if (auto wait = wait_for_workers(*strategy, place))
    fit.callbacks.insert(fit.callbacks.begin(), std::move(wait));
  fit.callbacks.push_back(
      std::make_shared<MetricsLog>(MetricsLog::Options{.file = config.directory / metrics_file(place)}));
  if (!place.only_trains()) {
    // Last, so that the others have written their data of the step.
    fit.callbacks.push_back(std::make_shared<ModelCheckpoint>(ModelCheckpoint::Options{
        .directory = checkpoints, .every_steps = config.checkpoint_every, .keep = config.keep}));
  }
  TrainAndEvaluateResult result{.fit = trainer.fit(data, fit)};
  if (!result.fit.validation.empty()) {
    result.figures = result.fit.validation;
    result.evaluated_step = result.fit.step;
  }
  context.shutdown();
  return result;
}

}  // namespace rondo
