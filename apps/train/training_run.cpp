#include "apps/train/training_run.h"

#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <numeric>

#include "apps/common/command_line.h"
#include "apps/train/flags.h"
#include "apps/train/job.h"
#include "apps/train/planned_training.h"
#include "apps/train/rank.h"
#include "apps/train/run_directory.h"
#include "apps/train/stop_signals.h"
#include "apps/train/trained_run.h"
#include "apps/train/trainer_setup.h"
#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/log.h"
#include "rondo/base/process.h"
#include "rondo/base/stage_progress.h"
#include "rondo/base/terminal.h"
#include "rondo/base/text.h"
#include "rondo/base/version.h"
#include "rondo/data/open.h"
#include "rondo/format/git_commit.h"
#include "rondo/format/run_directory.h"
#include "rondo/memory/scope.h"
#include "rondo/memory/tracker.h"
#include "rondo/models/model.h"
#include "rondo/nn/activation_checkpoint.h"
#include "rondo/nn/sync_batch_norm.h"
#include "rondo/parallel/pipeline/measured_cuts.h"
#include "rondo/parallel/server/server_strategy.h"
#include "rondo/parallel/sharded/sharded_options.h"
#include "rondo/parallel/strategy_on_mesh.h"
#include "rondo/train/agreement.h"
#include "rondo/train/callbacks/live_progress.h"
#include "rondo/train/callbacks/metrics_log.h"
#include "rondo/train/callbacks/model_checkpoint.h"
#include "rondo/train/callbacks/progress_display.h"
#include "rondo/train/callbacks/run_record.h"
#include "rondo/train/callbacks/timeline.h"
#include "rondo/train/fit_arguments.h"
#include "rondo/train/log_targets/log_targets.h"
#include "rondo/train/trainer.h"
#include "rondo/train/training_place.h"

namespace rondo {
namespace {

// Returns the servers' statistics of their workers, for the result; null for other strategies.
nlohmann::ordered_json served_summary(const Strategy& strategy) {
  const auto* const served = dynamic_cast<const ServerStrategy*>(&strategy);
  if (served == nullptr) return nullptr;
  const server::ServerFigures figures = served->figures();
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  std::uint64_t steps = 0, lost = 0;
  for (const server::WorkerFigures& worker : figures.workers) {
    const char* const phases[] = {"absent", "training", "finished", "lost", "finished"};
    steps += worker.clock;
    lost += worker.lost_steps;
    workers.push_back({{"phase", phases[static_cast<std::size_t>(worker.phase)]},
                       {"steps", worker.clock},
                       {"lost_steps", worker.lost_steps},
                       {"refused_updates", worker.refused},
                       {"late_steps", worker.late},
                       {"returns", worker.returns}});
  }
  return {
      {"steps", steps}, {"lost_steps", lost}, {"recovered_updates", figures.recovered}, {"workers", workers}};
}

// The tracker's own message would suggest another strategy, which is chosen later.
Model make_model_within_limit(const TrainFlags& flags, const std::function<Model()>& make) {
  const MemoryScope scope(MemoryCategory::parameters);
  try {
    return make();
  } catch (const MemoryLimitError& error) {
    throw UsageError(str("--memory-limit ", flags.memory_limit, " is too small for --model ", flags.model,
                         ": every rank creates the full model before the strategy shards it; ",
                         to_string(Bytes{replica_memory_tracker().peak_total()}),
                         " are in use, and its next tensor needs ", to_string(error.wanted()),
                         " more. Raise the limit, or train a smaller model"));
  }
}

ScheduleOptions schedule_options(const TrainFlags& flags) {
  ScheduleOptions options = flags.schedule;
  options.learning_rate = flags.optimizer.learning_rate;
  return options;
}

RunStart run_start(const TrainFlags& flags, std::int64_t parameters) {
  RunStart start;
  start.made = make_provenance("rondo train", {});
  const char* command = std::getenv(kCommandVariable);
  start.made.command = command != nullptr ? command : own_command();
  start.git_commit = git_commit(".");
  start.machine = machine_name();
  start.parameters = parameters;
  start.changed_options = flags.changed_options;
  return start;
}

FitOptions fit_options(const TrainFlags& flags, const TrainingPlace& place, const OpenedData& data,
                       const RunDirectory& run, RunStart start, std::shared_ptr<Callback> directory,
                       std::shared_ptr<Callback> prediction) {
  FitOptions options;
  options.epochs = flags.epochs;
  options.steps = flags.steps;
  options.batch_size = batch_size_per_replica(flags, place.readers);
  options.accumulate = flags.accumulate;
  options.seed = flags.seed;
  options.clip_norm = flags.clip_norm;
  options.loader_threads = flags.loader_threads;
  options.input_sharding = parse_auto_shard(flags.input_sharding, "--input-sharding");
  options.validation = data.validation;
  options.validate_every = flags.eval_every;
  options.validation_batch_size = flags.eval_batch_size;
  options.validation_batches = flags.eval_batches;
  // A plan reserves memory for its own batch only.
  if (flags.is_planned)
    options.validation_batch_size = std::min(options.validation_batch_size, options.batch_size);
  options.stop_requested = stop_requested;

  MetricsLog::Options logged;
  logged.file = run.path / metrics_file(place);
  logged.every_steps = flags.log_every;
  if (!flags.peak_flops.empty()) logged.peak_flops = peak_flops_of(flags).value_or(0);
  logged.tracked_bytes = [] { return Bytes{replica_memory_tracker().peak_total()}; };
  const bool writes = run.lock != nullptr;
  std::vector<LogTarget> log_targets;
  if (!place.only_trains())
    log_targets = make_log_targets(flags.log_to, flags.options, logged_run(flags, run, writes));
  for (const LogTarget& target : log_targets) {
    if (target.observer) logged.observers.push_back(target.observer);
  }
  const auto metrics = std::make_shared<MetricsLog>(std::move(logged));
  if (place.only_trains()) {
    options.validation = nullptr;
    options.callbacks.push_back(metrics);
    return options;
  }
  options.callbacks.push_back(std::move(directory));
  ProgressDisplay::Options progress;
  progress.style = parse_progress_style(flags.progress);
  progress.line_every_steps = flags.log_every;
  options.callbacks.push_back(std::make_shared<ProgressDisplay>(progress));
  options.callbacks.push_back(std::make_shared<RunRecord>(run.path, std::move(start), flags.labels));
  options.callbacks.push_back(std::make_shared<LiveProgress>(run.path));
  options.callbacks.push_back(metrics);
  if (prediction) options.callbacks.push_back(std::move(prediction));
  options.callbacks.push_back(std::make_shared<MemoryReport>(run.path));
  add_trainer_callbacks(flags, run, log_targets, options);
  if (flags.trace_steps > 0) {
    auto timeline = std::make_shared<Timeline>(run.path);
    options.trace = timeline->sink();
    options.trace_memory = timeline->memory_sink();
    options.traced_steps = flags.trace_steps;
    options.callbacks.push_back(std::move(timeline));
  }
  // Last, so that the other callbacks have written their final files when the last checkpoint exists.
  options.callbacks.push_back(std::make_shared<ModelCheckpoint>(
      ModelCheckpoint::Options{.directory = run.checkpoints(),
                               .every_steps = flags.checkpoint_every,
                               .keep = flags.keep,
                               .in_parts = flags.checkpoint_in_parts,
                               .in_background = flags.checkpoint_in_background,
                               .incremental = flags.checkpoint_incremental}));
  return options;
}

const char* to_text(FitEnd end) {
  switch (end) {
    case FitEnd::finished:
      return "finished";
    case FitEnd::early:
      return "stopped early";
    case FitEnd::preempted:
      return "pre-empted";
  }
  return "";
}

// Returns the command that most users want after a training.
std::string next_command(FitEnd end, const RunDirectory& run) {
  const std::string path = run.path.string();
  const std::vector<std::string> report = {"rondo", "report", path};
  const std::vector<std::string> resume = {"rondo", "train", "--run-dir", path, "--resume"};
  return shell_text(end == FitEnd::preempted ? resume : report);
}

void print_result(const TrainFlags& flags, const RunDirectory& run, const Context& context,
                  const Trainer& trainer, const FitResult& result, const PredictionReport* prediction,
                  std::int64_t parameters) {
  std::ostream& out = flags.json.empty() ? std::cout : std::cerr;
  out << to_text(result.end) << " after step " << result.step;
  if (result.loss) out << ", loss " << *result.loss;
  for (const auto& [metric, value] : result.validation) out << ", validation " << metric << " " << value;
  out << ", run directory " << run.path.string() << "\n"
      << "next: " << next_command(result.end, run) << std::endl;
  nlohmann::ordered_json summary = {
      {"run_dir", run.path.string()},
      {"end", to_text(result.end)},
      {"step", result.step},
      {"loss", result.loss ? nlohmann::ordered_json(*result.loss) : nlohmann::ordered_json()},
      {"validation", result.validation},
      {"elapsed_s", trainer.position().elapsed_s},
      {"ranks", context.world_size()},
      {"replicas", trainer.strategy().num_replicas_in_sync()},
      {"strategy", trainer.strategy().name()},
      {"backend", context.backend_name()},
      {"model", {{"name", trainer.model().name}, {"parameters", parameters}}}};
  if (const auto served = served_summary(trainer.strategy()); !served.is_null()) summary["servers"] = served;
  if (prediction != nullptr) summary["prediction"] = prediction->result();
  write_json(flags.json, summary);
}

// Returns the training's outline: what it is, in the lines after `intention`, such as "training".
std::string outline_of(const std::string& intention, const TrainFlags& flags, const RunDirectory& run,
                       const TrainingPlace& place, const OpenedData& data, const Trainer& trainer,
                       std::int64_t parameters) {
  const Context& context = trainer.strategy().context();
  const std::int64_t batch = batch_size_per_replica(flags, place.readers);
  const std::int64_t replicas = trainer.strategy().num_replicas_in_sync();
  const std::string until =
      flags.steps ? str("to step ", *flags.steps) : str(flags.epochs.value_or(1), " epochs");
  return rondo::str(intention, " ", trainer.model().name, " (", parameters, " parameters) from step ",
                    trainer.position().step, ", ", until, "\n  processes      ", context.world_size(),
                    ", strategy ", trainer.strategy().name(), ", backend ", context.backend_name(),
                    ", device ", context.device(), "\n  data           ", flags.data, ": ",
                    data.train->size(), " samples of kind ", data.kind, ", ",
                    data.validation ? data.validation->size() : 0, " for validation\n  a step         ",
                    batch * replicas * flags.accumulate, " samples: ", batch, " x ", replicas, " replicas x ",
                    flags.accumulate, " passes\n  optimizer      ", flags.optimizer.name, ", lr ",
                    flags.optimizer.learning_rate, ", schedule ", flags.schedule.kind, "\n  run directory  ",
                    run.path.string());
}

// Prints the training's outline, for --dry-run.
void print_dry_run(const TrainFlags& flags, const RunDirectory& run, const TrainingPlace& place,
                   const OpenedData& data, const Trainer& trainer, std::int64_t parameters) {
  const Context& context = trainer.strategy().context();
  const std::int64_t replicas = trainer.strategy().num_replicas_in_sync();
  const std::int64_t step = trainer.position().step;
  const std::int64_t samples = batch_size_per_replica(flags, place.readers) * replicas * flags.accumulate;
  std::ostream& out = flags.json.empty() ? std::cout : std::cerr;
  out << outline_of("dry run: would train", flags, run, place, data, trainer, parameters)
      << "\nnothing was trained or written" << std::endl;
  write_json(flags.json, {{"dry_run", true},
                          {"run_dir", run.path.string()},
                          {"step", step},
                          {"ranks", context.world_size()},
                          {"replicas", replicas},
                          {"strategy", trainer.strategy().name()},
                          {"backend", context.backend_name()},
                          {"samples", data.train->size()},
                          {"samples_per_step", samples},
                          {"model", {{"name", trainer.model().name}, {"parameters", parameters}}}});
}

// Returns the given options that strategy `name` has. If "auto" selected a single-process strategy, options
// of other strategies may have been given.
OptionValues strategy_values(const TrainFlags& flags, const OptionTable& options) {
  OptionValues values = flags.options_in(options);
  if (options.find("strategy-seed") != nullptr) values.emplace("strategy-seed", std::to_string(flags.seed));
  return values;
}

std::unique_ptr<Strategy> make_strategy(const TrainFlags& flags, const StrategyRegistry& strategies,
                                        const std::string& name, const Context& context,
                                        const OptionValues& of_pipeline = {}) {
  const auto values_of = [&](const std::string& strategy) {
    OptionValues values = strategy_values(flags, strategies.declaration(strategy).options);
    if (strategy == "pipeline") {
      for (const auto& [option, value] : of_pipeline) values[option] = value;
    }
    return values;
  };
  if (context.mesh().size() > 1) return strategy_on_mesh(strategies, name, context, values_of);
  return strategies.make(name, context, values_of(name));
}

// `before_first_step` becomes false when a step has been done.
ExitCode train_in(Context context, TrainingPlace place, TrainFlags flags, const StrategyRegistry& strategies,
                  bool& before_first_step) {
  const auto lie_on = [&](const std::function<Mesh()>& find) {
    Context meshed = context;
    run_agreed(context, [&] {
      if (const Mesh mesh = find(); !mesh.empty()) meshed = context.mesh(mesh);
    });
    context = meshed;
    place = {.writes = context.rank() == 0, .readers = replicas_of(context.mesh())};
    for (const std::vector<int>& readers :
         ranks_along(context.mesh(), {std::begin(kReplicaDimensions), std::end(kReplicaDimensions)})) {
      const auto own = std::find(readers.begin(), readers.end(), context.rank());
      if (own != readers.end()) place.reader = static_cast<int>(own - readers.begin());
    }
  };
  if (place.is_served) {
    log::set_prefix(str("worker ", place.reader));
  } else {
    verify_same_arguments(
        context, "this command",
        {{.name = "--strategy", .value = flags.strategy}, {.name = "--mesh", .value = flags.mesh}});
    lie_on([&] { return flags.is_planned ? Mesh() : mesh_of(flags, context.world_size()); });
  }

  if (place.writes) {
    for (const std::string& note : flags.notes) std::cerr << "rondo train: " << note << "\n";
  }
  const RestartMemory memory(flags, place, context);
  go_on_after_restart(flags, memory.goes_on());

  const ProgressStyle stage_style = place.writes ? parse_progress_style(flags.progress) : ProgressStyle::off;
  StageProgress stage(stderr, {.style = stage_style});
  stage.begin("reading the data");
  // Everything that can fail before training fails here, as one error for the job.
  OpenedData data;
  Model model;
  std::string strategy_named;
  nlohmann::json overrides;
  const c10::Device device = context.device();
  RunDirectory run;
  LossFunction loss = cross_entropy;
  std::vector<Metric> metrics;
  run_agreed(context, [&] {
    profiled_batch_size(flags, place.readers);
    strategy_named = strategies.resolve(strategy_name(flags, context.world_size()));
    // One process refuses the same values as several would (such as an unknown codec).
    if (flags.strategy == "auto" && context.mesh().size() == 1)
      make_strategy(flags, strategies, strategy_of_auto(/*several_processes=*/true), context);
    choose_model(flags, context.rank() == 0 && !place.only_trains());
    resolve(precision_options(flags));
    overrides = model_overrides(flags);
    data = open_training_data(flags, overrides);
    check_trainer_flags(flags, data.validation != nullptr);
    const DatasetInfo& info = data.train->info();
    loss = chosen_loss(flags, info);
    metrics = chosen_metrics(flags, info, metrics_for(flags, info));
    memory.check(flags, place);
    if (context.rank() == 0) run = find_run_directory(flags, !place.only_trains());
  });
  // Rank 0's clock and disk decide for all.
  const nlohmann::json agreed = broadcast_object(
      {{"path", run.path.string()}, {"resume_from", run.resume_from ? run.resume_from->string() : ""}},
      context.world());
  run.path = agreed.at("path").get<std::string>();  // its lock stays on rank 0
  if (const std::string from = agreed.at("resume_from"); !from.empty()) run.resume_from = from;
  memory.choose(context, run);
  const auto first_batch = [&] {
    const std::int64_t batch = profiled_batch_size(flags, place.readers);
    std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(batch, data.train->size())));
    std::iota(samples.begin(), samples.end(), 0);
    return data.train->get(samples);
  };
  stage.begin(flags.is_planned ? "measuring and planning" : "building the model");
  const JobPlan plan = plan_job(flags, context, run, [&] {
    return JobToPlan{
        .make_model =
            [&] { return make_training_model(flags, data.train->info(), overrides, context.rank()); },
        .batch = first_batch(),
        .optimizer = flags.optimizer,
        .loss = loss,
        .loss_name = str(loss_name(flags, data.train->info()),
                         flags.class_weights.empty() ? "" : " with class weights")};
  });
  if (!plan.mesh.empty()) {
    lie_on([&] { return plan.mesh; });
    strategy_named = plan.strategy_on_mesh();
    if (plan.batch_size > 0) {
      flags.batch_size = plan.batch_size;
      flags.global_batch_size.reset();
    }
  }
  stage.begin("building the model");
  // From here on: memory used for measuring has been released.
  replica_memory_tracker().reset_peak();
  if (!flags.memory_limit.empty())
    replica_memory_tracker().set_limit(parse_bytes(flags.memory_limit, "--memory-limit"));
  std::unique_ptr<Strategy> strategy;
  const auto make_prepared_model = [&](int rank) {
    Model made = make_model_within_limit(
        flags, [&] { return make_training_model(flags, data.train->info(), overrides, rank); });
    use_flag("--activation-checkpointing", flags.checkpoint_activations,
             [&] { return checkpoint_activations(*made.module, flags.checkpoint_activations); });
    plan.checkpoint_units(*made.module);
    return made;
  };
  run_agreed(context, [&] {
    model = make_prepared_model(context.rank());
    OptionValues of_pipeline = plan.pipeline_options();
    if (size_along(context.mesh(), "pipeline") > 1 && of_pipeline.empty() &&
        !flags.options.contains("stage-cuts")) {
      const OptionValues values = flags.options_in(strategies.declaration("pipeline").options);
      const std::uint64_t limit =
          flags.memory_limit.empty() ? 0 : parse_bytes(flags.memory_limit, "--memory-limit").count;
      of_pipeline["stage-cuts"] =
          join(measured_stage_cuts(context, model, first_batch(),
                                   strategies.read<PipelineOptions>("pipeline", values), limit),
               ",");
    }
    strategy = make_strategy(
        flags, plan.text.empty() ? strategies : with_plan(strategies, plan.text_along_data(context)),
        strategy_named, context, of_pipeline);
  });
  const std::int64_t parameters =
      count_parameters(*model.module);  // counted now, because a rank may soon hold only a part of them
  const InputShard shard = strategy->input_shard();
  if (flags.sync_batch_norm && shard.replicas > 1) {
    throw UsageError(str("--sync-batch-norm is for one replica a process: strategy ", strategy->name(),
                         " has ", shard.replicas, ", whose batch norms each see their own part; use ddp"));
  }
  if (flags.sync_batch_norm &&
      worker_of(strategies.declarations(), flags.strategy) == ServedWorker::process) {
    throw UsageError(
        "--sync-batch-norm: workers of strategy parameter_server do not wait for each other, so each "
        "normalises "
        "its own batch; use grouped, or leave it out");
  }
  if (flags.sync_batch_norm) {
    // A separate group: gradients use the world's group during the same backward pass.
    if (synchronise_batch_norms(*model.module, context.new_group_along({"data"})) == 0) {
      throw UsageError(
          str("--sync-batch-norm: --model ", flags.model,
              " has no batch normalisation; for a convnet: --model-config '{\"batch_norm\": true}'"));
    }
  }
  // Only the first replica of a process reports found pretrained weights.
  const ModelFactory models = [&, first = std::make_shared<Model>(std::move(model))] {
    return first->module ? std::exchange(*first, {}) : make_prepared_model(-1);
  };
  Trainer trainer(*strategy, models, device, precision_options(flags));
  trainer.compile(flags.optimizer, std::move(loss), std::move(metrics));
  // Operations that draw from libtorch's own generator differ on every rank. (Dropout of the built-in models
  // draws by sample.)
  torch::manual_seed(flags.seed + 1 + static_cast<std::uint64_t>(place.reader));
  if (run.resume_from) {
    stage.begin("restoring the checkpoint");
    trainer.restore(*run.resume_from);
  }
  if (flags.dry_run) {
    stage.end();
    run_agreed(context, [&] { make_schedule(schedule_options(flags)); });
    if (context.rank() == 0) print_dry_run(flags, run, place, data, trainer, parameters);
    context.shutdown();
    return ExitCode::ok;
  }

  std::shared_ptr<PredictionReport> prediction;
  if (plan.predicts) prediction = std::make_shared<PredictionReport>(run.path, plan.prediction);
  RunFiles files = plan.files;
  files["config.json"] = flags.configuration.dump(2) + "\n";
  files["data.json"] = describe_data(data.train->info()).dump(2) + "\n";
  FitOptions fit;
  run_agreed(context, [&] {
    fit = fit_options(flags, place, data, run, run_start(flags, parameters),
                      std::make_shared<RunDirectoryWriter>(run, std::move(files)), prediction);
    fit.named_schedule = schedule_options(flags);
    make_schedule(*fit.named_schedule);
  });
  if (auto wait = wait_for_workers(*strategy, place))
    fit.callbacks.insert(fit.callbacks.begin(), std::move(wait));
  if (!run.resume_from) fit.initial_step = steps_done_before(*strategy);
  if (auto replica = memory.callback(flags)) fit.callbacks.push_back(std::move(replica));
  memory.begin();
  stage.end();
  if (stage_style != ProgressStyle::off) {
    const TextColours colours(wants_colours(STDERR_FILENO));
    print_message(outline_of(colours.heading(str("rondo ", kVersion, ": training")), flags, run, place, data,
                             trainer, parameters));
  }
  request_stop_on_signals();
  const std::int64_t first_step = std::max(trainer.position().step, fit.initial_step);
  FitResult result;
  try {
    result = trainer.fit(data.train, fit);
  } catch (const CommunicationError&) {
    before_first_step = trainer.position().step <= first_step;
    throw;
  }
  if (place.writes) print_result(flags, run, context, trainer, result, prediction.get(), parameters);
  context.shutdown();
  return result.end == FitEnd::preempted ? ExitCode::preempted : ExitCode::ok;
}

}  // namespace

ExitCode run_training(const TrainFlags& flags, const StrategyRegistry& strategies) {
  track_cpu_allocations();
  InitOptions init_options;
  init_options.backend = flags.engine;
  init_options.device = flags.device;
  if (flags.deterministic) init_options.deterministic = true;
  init_options.timeout = parse_duration(flags.timeout, "--timeout");
  const TrainingPlace place =
      training_place(worker_of(strategies.declarations(), flags.strategy), flags.options, init_options);
  bool before_first_step = true;
  try {
    const Context context = init(init_options);
    try {
      return train_in(context, place, flags, strategies, before_first_step);
    } catch (const JobError&) {
      stand_by_report(context);
      throw;
    }
  } catch (const CommunicationError&) {
    if (!before_first_step || !stopped_before_first_step()) throw;
    return ExitCode::preempted;
  }
}

}  // namespace rondo
