#include "apps/train/training_run.h"

#include <torch/cuda.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <numeric>

#include "apps/common/command_line.h"
#include "apps/train/bert_setup.h"
#include "apps/train/planned_training.h"
#include "apps/train/run_directory.h"
#include "apps/train/strategy_setup.h"
#include "rondo/backend/accounting.h"
#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/data/open.h"
#include "rondo/memory/ledger.h"
#include "rondo/memory/limit_error.h"
#include "rondo/models/freeze.h"
#include "rondo/models/model.h"
#include "rondo/nn/activation_checkpoint.h"
#include "rondo/nn/sync_batch_norm.h"
#include "rondo/parallel/registry.h"
#include "rondo/precision/dtype.h"
#include "rondo/train/agreement.h"
#include "rondo/train/callbacks/early_stopping.h"
#include "rondo/train/callbacks/memory_report.h"
#include "rondo/train/callbacks/metrics_log.h"
#include "rondo/train/callbacks/model_checkpoint.h"
#include "rondo/train/callbacks/progress_display.h"
#include "rondo/train/callbacks/tensor_board.h"
#include "rondo/train/callbacks/timeline.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

// Set by TERM and INT.
std::atomic<bool> stop_signal{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

void stop_after_this_step_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_signal.store(true); };
  action.sa_flags = SA_RESTART;
  // Under a launcher a terminal's INT arrives twice, and the launcher itself ends a job that was interrupted
  // twice.
  if (std::getenv("RONDO_LAUNCHER") == nullptr) action.sa_flags |= static_cast<int>(SA_RESETHAND);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

c10::Device device_of(const std::string& name, int local_rank) {
  const bool has_cuda = torch::cuda::is_available();
  if (name == "cpu" || (name == "auto" && !has_cuda)) return c10::kCPU;
  if (!has_cuda) throw UsageError("--device cuda: libtorch sees no CUDA device; use --device cpu or auto");
  const auto count = static_cast<int>(torch::cuda::device_count());
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank % count)};
}

nlohmann::json parse_model_config(const std::string& text_or_file) {
  if (text_or_file.empty()) return nlohmann::json::object();
  std::string text = text_or_file;
  if (std::ifstream file(text_or_file); text.front() != '{' && file) {
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  nlohmann::json config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object())
    throw UsageError(str("--model-config ", text_or_file, " is neither a JSON object nor a file with one"));
  return config;
}

bool is_gpt(const std::string& model) { return model.starts_with("gpt"); }

// The user's part of the model's configuration.
nlohmann::json model_overrides(const TrainFlags& flags) {
  nlohmann::json config = parse_model_config(flags.model_config);
  const bool bert = is_bert(flags.model);
  const auto set = [&](const char* key, const auto& value, bool has_it) {
    if (!value) return;
    if (!has_it) {
      throw UsageError(str("--", key, " is for gpt and bert models, not for --model ", flags.model));
    }
    config[key] = *value;
  };
  set("layers", flags.layers, is_gpt(flags.model) || bert);
  set("heads", flags.heads, is_gpt(flags.model) || bert);
  set("width", flags.width, is_gpt(flags.model) || bert);
  // Of a bert's the data decides: it may have more positions than samples are long.
  if (!bert) set("context", flags.context, is_gpt(flags.model));
  set("dropout", flags.dropout, flags.model != "mlp");
  if (bert) {
    set("attention_dropout", flags.dropout, true);
    set("classifier_dropout", flags.dropout, true);
  }
  return config;
}

OpenedData open_training_data(const TrainFlags& flags, const nlohmann::json& overrides) {
  DataOptions options;
  options.validation_fraction = flags.validation_fraction;
  options.split_seed = flags.seed;
  for (const std::string& extension : flags.extensions) {
    options.extensions.push_back(extension.starts_with(".") ? extension : "." + extension);
  }
  options.label_column = flags.label_column;
  if (is_bert(flags.model))
    return open_data(bert_data_kind(flags), flags.data, bert_data_options(flags, options));
  const nlohmann::json defaults = model_config(flags.model);
  if (overrides.contains("context")) {
    options.context = overrides["context"].get<std::int64_t>();
  } else if (defaults.contains("context")) {
    options.context = defaults["context"].get<std::int64_t>();
  }
  OpenedData data = open_data(flags.data_kind, flags.data, options);
  if ((data.kind == "text") != is_gpt(flags.model)) {
    throw UsageError(str("--model ", flags.model, " does not train on ", data.kind, " data (", flags.data,
                         "); gpt models train on text, mlp and convnet on images and tables"));
  }
  return data;
}

Model make_training_model(const TrainFlags& flags, const DatasetInfo& info, const nlohmann::json& overrides,
                          int rank) {
  nlohmann::json config = info.model_config();
  config.update(overrides);
  if (is_bert(flags.model)) config = bert_training_config(flags, info, overrides);
  torch::manual_seed(flags.seed);
  Model model = make_model(flags.model, config);
  load_bert_weights(flags, model, rank == 0);
  if (!flags.init_weights.empty()) load_weights(flags.init_weights, named_tensors(*model.module));
  freeze(*model.module, flags.freeze);
  return model;
}

// The books' own message would advise another strategy, and those come later.
Model make_model_within_limit(const TrainFlags& flags, const std::function<Model()>& make) {
  const MemoryScope scope(MemoryCategory::parameters);
  try {
    return make();
  } catch (const MemoryLimitError& error) {
    throw UsageError(str("--memory-limit ", flags.memory_limit, " does not hold --model ", flags.model,
                         " itself: every rank makes all of it before a strategy divides its units, ",
                         to_string(Bytes{process_ledger().peak_total()}), " until now and ",
                         to_string(error.wanted()),
                         " more for its next tensor. Raise the limit, or train a smaller model"));
  }
}

std::vector<Metric> metrics_for(const TrainFlags& flags) {
  if (is_gpt(flags.model) || flags.task == "mlm") return {loss_metric(), perplexity_metric()};
  return {loss_metric(), accuracy_metric()};
}

OptimizerOptions optimizer_options(const TrainFlags& flags) {
  OptimizerOptions options;
  options.name = flags.optimizer;
  options.learning_rate = flags.lr;
  options.weight_decay = flags.weight_decay;
  options.momentum = flags.momentum;
  options.beta1 = flags.beta1;
  options.beta2 = flags.beta2;
  return options;
}

PrecisionOptions precision_options(const TrainFlags& flags) {
  const auto knob = [](const std::string& text) -> std::optional<bool> {
    if (text == "auto") return {};
    return text == "true";
  };
  PrecisionOptions options;
  options.level = parse_opt_level(flags.amp, "--amp");
  options.dtype = parse_float_dtype(flags.amp_dtype, "--amp-dtype");
  options.keep_batchnorm_fp32 = knob(flags.keep_batchnorm_fp32);
  options.master_weights = knob(flags.master_weights);
  if (flags.loss_scale != "auto") options.loss_scale = parse_loss_scale(flags.loss_scale, "--loss-scale");
  // Gradients of float16 vanish without, whoever casts.
  const bool half_units = parse_mixed_precision_policy(flags.mixed_precision).param_dtype == at::kHalf;
  if (flags.loss_scale == "auto" && half_units) options.loss_scale = LossScale{.dynamic = true};
  return options;
}

ScheduleOptions schedule_options(const TrainFlags& flags, std::int64_t total_steps) {
  ScheduleOptions options;
  options.kind = flags.schedule;
  options.learning_rate = flags.lr;
  options.warmup_steps = flags.warmup;
  options.total_steps = total_steps;
  options.end_fraction = flags.lr_end;
  options.decay_every = flags.lr_step;
  options.decay_factor = flags.lr_factor;
  return options;
}

FitOptions fit_options(const TrainFlags& flags, const Context& context, const OpenedData& data,
                       const RunDirectory& run, std::shared_ptr<Callback> prediction) {
  FitOptions options;
  options.epochs = flags.epochs;
  options.steps = flags.steps;
  options.batch_size = batch_size_per_rank(flags, context.world_size());
  options.accumulate = flags.accumulate;
  options.seed = flags.seed;
  options.clip_norm = flags.clip_norm;
  options.loader_workers = flags.workers;
  options.validation = data.validation;
  options.validate_every = flags.eval_every;
  options.validation_batch_size = flags.eval_batch_size;
  // A plan leaves room for its own batch.
  if (flags.strategy == "planned")
    options.validation_batch_size = std::min(options.validation_batch_size, options.batch_size);
  options.stop_requested = [] { return stop_signal.load(); };

  ProgressDisplay::Options progress;
  progress.style = parse_progress_style(flags.progress);
  progress.line_every_steps = flags.log_every;
  options.callbacks.push_back(std::make_shared<ProgressDisplay>(progress));
  options.callbacks.push_back(std::make_shared<MetricsLog>(
      MetricsLog::Options{.file = run.metrics(), .every_steps = flags.log_every, .accounted_bytes = [] {
                            return Bytes{process_ledger().peak_total()};
                          }}));
  if (prediction) options.callbacks.push_back(std::move(prediction));
  options.callbacks.push_back(std::make_shared<MemoryReport>(run.path));
  options.callbacks.push_back(std::make_shared<TensorBoard>(
      TensorBoard::Options{.directory = run.path, .every_steps = flags.log_every}));
  if (flags.early_stopping > 0) {
    options.callbacks.push_back(
        std::make_shared<EarlyStopping>(EarlyStopping::Options{.patience = flags.early_stopping}));
  }
  if (flags.trace_steps > 0) {
    auto timeline = std::make_shared<Timeline>(run.path);
    options.trace = timeline->sink();
    options.trace_memory = timeline->memory_sink();
    options.traced_steps = flags.trace_steps;
    options.callbacks.push_back(std::move(timeline));
  }
  // Last, so that a checkpoint has the other callbacks' state of the same step.
  options.callbacks.push_back(std::make_shared<ModelCheckpoint>(ModelCheckpoint::Options{
      .directory = run.checkpoints(), .every_steps = flags.checkpoint_every, .keep = flags.keep}));
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

void print_result(const TrainFlags& flags, const RunDirectory& run, const Context& context,
                  const Trainer& trainer, const FitResult& result, const PredictionReport* prediction) {
  if (context.rank() != 0) return;
  std::ostream& out = flags.json.empty() ? std::cout : std::cerr;
  out << to_text(result.end) << " after step " << result.step << ", loss " << result.loss;
  for (const auto& [metric, value] : result.validation) out << ", validation " << metric << " " << value;
  out << ", run directory " << run.path.string() << std::endl;
  nlohmann::ordered_json summary = {
      {"run_dir", run.path.string()},
      {"end", to_text(result.end)},
      {"step", result.step},
      {"loss", result.loss},
      {"validation", result.validation},
      {"elapsed_s", trainer.position().elapsed_s},
      {"ranks", context.world_size()},
      {"strategy", trainer.strategy().name()},
      {"backend", context.backend_name()},
      {"model", {{"name", trainer.model().name}, {"parameters", count_parameters(*trainer.model().module)}}}};
  if (prediction != nullptr) summary["prediction"] = prediction->result();
  write_json(flags.json, summary);
}

}  // namespace

ExitCode run_training(const TrainFlags& flags) {
  account_cpu_allocations();
  InitOptions init_options;
  init_options.backend = flags.backend;
  if (flags.reproducible) init_options.reproducible = true;
  init_options.timeout = parse_duration(flags.timeout, "--timeout");
  Context context = init(init_options);
  if (context.world_size() > 1) log::set_prefix(str("rank ", context.rank()));

  // Everything that can go wrong before training goes wrong here, and is one error for the job.
  OpenedData data;
  Model model;
  StrategyOptions options;
  std::string strategy_named;
  nlohmann::json overrides;
  c10::Device device = c10::kCPU;
  RunDirectory run;
  run_agreed(context, [&] {
    batch_size_per_rank(flags, context.world_size());
    check_bert_flags(flags);
    options = strategy_options(flags, context.world());
    // Known or not, before anything is measured.
    strategy_named = all_strategies().resolve(strategy_name(flags, context.world_size()));
    device = device_of(flags.device, context.local_rank());
    resolve(precision_options(flags));
    overrides = model_overrides(flags);
    data = open_training_data(flags, overrides);
    if (context.rank() == 0) run = find_run_directory(flags);
  });
  // Rank 0's clock and disk decide for all.
  const nlohmann::json agreed = broadcast_object(
      {{"path", run.path.string()}, {"resume_from", run.resume_from ? run.resume_from->string() : ""}},
      context.world());
  run.path = agreed.at("path").get<std::string>();
  if (const std::string from = agreed.at("resume_from"); !from.empty()) run.resume_from = from;
  const JobPlan plan = plan_job(flags, context, run, [&] {
    const std::int64_t batch = batch_size_per_rank(flags, context.world_size());
    std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(batch, data.train->size())));
    std::iota(samples.begin(), samples.end(), 0);
    return JobToPlan{
        .make_model =
            [&] { return make_training_model(flags, data.train->info(), overrides, context.rank()); },
        .batch = data.train->get(samples),
        .optimizer = optimizer_options(flags)};
  });
  options.plan_text = plan.text;
  // From here on: what measuring took is given back.
  process_ledger().reset_peak();
  if (!flags.memory_limit.empty())
    process_ledger().set_limit(parse_bytes(flags.memory_limit, "--memory-limit"));
  std::unique_ptr<Strategy> strategy;
  run_agreed(context, [&] {
    strategy = all_strategies().make(strategy_named, context, options);
    model = make_model_within_limit(
        flags, [&] { return make_training_model(flags, data.train->info(), overrides, context.rank()); });
    checkpoint_activations(*model.module, flags.checkpoint_activations);
  });
  run_agreed(context, [&] {
    if (context.rank() == 0) prepare_run_directory(run, to_json(flags));
  });

  if (flags.sync_batch_norm) {
    // A group of its own: gradients travel over the world's in the same backward pass.
    if (synchronise_batch_norms(*model.module, context.new_group(context.world().ranks())) == 0) {
      throw UsageError(
          str("--sync-batch-norm: --model ", flags.model,
              " has no batch normalisation; for a convnet: --model-config '{\"batch_norm\": true}'"));
    }
  }
  Trainer trainer(*strategy, std::move(model), device, precision_options(flags));
  trainer.compile([&](torch::nn::Module& module) { return make_optimizer(optimizer_options(flags), module); },
                  cross_entropy, metrics_for(flags));
  // What draws from libtorch's own generator draws differently on every rank. (Dropout of the built-in models
  // draws by sample.)
  torch::manual_seed(flags.seed + 1 + static_cast<std::uint64_t>(context.rank()));
  if (run.resume_from) trainer.restore(*run.resume_from);

  std::shared_ptr<PredictionReport> prediction;
  if (plan.predicts) prediction = std::make_shared<PredictionReport>(run.path, plan.prediction);
  FitOptions fit = fit_options(flags, context, data, run, prediction);
  fit.schedule =
      make_schedule(schedule_options(flags, total_steps(fit, data.train->size(), context.world_size())));
  stop_after_this_step_on_signals();
  const FitResult result = trainer.fit(data.train, fit);
  print_result(flags, run, context, trainer, result, prediction.get());
  context.shutdown();
  return result.end == FitEnd::preempted ? ExitCode::preempted : ExitCode::ok;
}

}  // namespace rondo
