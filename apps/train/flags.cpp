#include "apps/train/flags.h"

#include <algorithm>
#include <iterator>

#include "apps/common/wrong_flag.h"
#include "rondo/backend/engine/engine_text.h"
#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/env/device_name.h"
#include "rondo/launch/host_resources.h"
#include "rondo/launch/stop_signals.h"
#include "rondo/models/model_options.h"
#include "rondo/nn/loss_names.h"

namespace rondo {

namespace {

// Names of targets, each once, or "none" alone.
AllowedValues log_target_names(const std::vector<Declaration>& targets) {
  std::vector<std::string> names = {kNoLogTarget};
  for (const Declaration& target : targets) names.push_back(target.name);
  std::sort(names.begin(), names.end());
  return {.check =
              [names](const std::string& text, const std::string& what) {
                std::vector<std::string> given = split(text, ',');
                for (const std::string& name : given) {
                  if (std::find(names.begin(), names.end(), name) == names.end()) {
                    const std::string meant = suggest_option(name, names);
                    throw UsageError(str(what, " ", printable(name), ": expected ", list_with_or(names),
                                         meant.empty() ? "" : str("; did you mean ", meant, "?")));
                  }
                  if (std::count(given.begin(), given.end(), name) > 1)
                    throw UsageError(str(what, " ", text, ": ", name, " is named twice"));
                }
                if (given.empty())
                  throw UsageError(
                      str(what, ": expected ", list_with_or(names), "; to log to no target, give none"));
                if (given.size() > 1 && std::find(given.begin(), given.end(), kNoLogTarget) != given.end())
                  throw UsageError(str(what, " ", text, ": none cannot be combined with other targets"));
              },
          .type = str("{", join(names, ","), "}")};
}

}  // namespace

OptionsOf<TrainerFlags> trainer_flags_table(const TrainChoices& choices) {
  using Flags = TrainerFlags;
  OptionsOf<TrainerFlags> table;
  table.begin_group("Epochs, metrics, weights (docs/trainer.md)");
  table.add("steps-per-epoch", &Flags::steps_per_epoch, "Steps per epoch; 0: one pass over the data",
            zero_or_more());
  table.add("metrics", &Flags::metrics,
            "Validation metrics: accuracy, auc, f1, mae, mse, perplexity, precision, recall, top_k; default: "
            "the model's");
  table.add("class-weights", &Flags::class_weights, "Weight of each class in the loss");
  table.begin_group("Alongside training (docs/trainer.md)");
  table.add("restore-best", &Flags::restore_best,
            "With --early-stopping-patience: restore the weights of the best validation at the end");
  table.add("keep-best", &Flags::best_of,
            "Keep checkpoints of the best validations by this metric in RUN/best");
  table.add("lr-plateau-patience", &Flags::reduce_on_plateau,
            "Validations without a better loss before the learning rate drops to a tenth; 0: never",
            zero_or_more());
  table.add("terminate-on-nan", &Flags::terminate_on_nan, "Stop training when the loss is not finite");
  table.add("gradient-norm-every", &Flags::gradient_norm_every,
            "Steps between measurements of the gradient norm; 0: never", zero_or_more());
  table.add("ema-decay", &Flags::average_weights,
            "Decay of an exponential moving average of the weights (docs/trainer.md); 0: none",
            within(0, 0.999999));
  table.add("log-to", &Flags::log_to, "Log targets in addition to metrics.jsonl (docs/observability.md)",
            log_target_names(choices.log_targets));
  table
      .add("peak-flops", &Flags::peak_flops,
           "Peak FLOP/s of a rank, such as 140e12, or measured; adds mfu to the metrics")
      .type = "FLOPS";
  table
      .add("preemption-file", &Flags::preemption_file,
           "Save and stop, as at TERM, when this file appears on a host")
      .type = "FILE";
  table.add("trace-after", &Flags::trace_after, "Steps to skip before the first of --trace-steps",
            zero_or_more());
  table.without_flags({"class-weights", "lr-plateau-patience", "gradient-norm-every", "peak-flops",
                       "preemption-file", "restore-best", "steps-per-epoch", "terminate-on-nan",
                       "trace-after"});
  return table;
}

namespace {

using Flags = TrainFlags;
using Table = OptionsOf<TrainFlags>;

// Names of entries, and of aliases, for a flag that chooses one.
std::vector<std::string> names_of(const std::vector<Declaration>& entries, bool with_auto) {
  std::vector<std::string> names;
  if (with_auto) names.emplace_back("auto");
  for (const Declaration& entry : entries) {
    names.push_back(entry.name);
    names.insert(names.end(), entry.aliases.begin(), entry.aliases.end());
  }
  return names;
}

// A built-in model's name, or a file with a model.
AllowedValues a_model(const std::vector<Declaration>& models) {
  const std::vector<std::string> names = names_of(models, true);
  return {.check =
              [names](const std::string& text, const std::string& what) {
                if (model_file(text) || std::find(names.begin(), names.end(), text) != names.end()) return;
                throw UsageError(str(what, " ", text, ": expected one of ", join(names, ", ")));
              },
          .type = one_of(names).type};
}

// An engine's name, with options in brackets, or that of one in a shared module.
AllowedValues an_engine(const std::vector<Declaration>& engines) {
  std::vector<Declaration> built_in = engines;
  std::erase_if(built_in, [](const Declaration& engine) { return engine.installed_apart; });
  return {.check = [engines](const std::string& text,
                             const std::string& what) { check_engine(text, what, engines); },
          .type = one_of(names_of(built_in, true)).type};
}

void add_data_flags(Table& table, const TrainChoices& choices) {
  table.begin_group("Data");
  Option& data = table.add("data", &Flags::data, "File or directory to train on");
  data.type = "PATH";
  data.is_common = true;
  table.add("data-weights", &Flags::data_weights,
            "Mix data sets: with --data A,B, 0.7,0.3 takes 70 % of the samples from A");
  table.add("data-kind", &Flags::data_kind, "Kind of the data", one_of(names_of(choices.data_kinds, true)));
  table.add("validation-fraction", &Flags::validation_fraction, "Part kept for validation (text: the tail)",
            within(0, 0.99));
  table.add("input-sharding", &Flags::input_sharding,
            "Division of the input among processes: by sample (data), by file, none (off) or auto",
            one_of({"auto", "data", "file", "off"}));
  table.add("loader-threads", &Flags::loader_threads, "Data-loading threads per rank", zero_or_more());
}

void add_model_flags(Table& table, const TrainChoices& choices) {
  table.begin_group("Model");
  table
      .add("model", &Flags::model, "Model to train; auto: chosen by the kind of data",
           a_model(choices.models))
      .is_common = true;
  table
      .add("model-config", &Flags::model_config,
           "JSON object, or a file with one, that overrides the model's settings")
      .takes_object = true;
  table.add("freeze", &Flags::freeze, "Parts of the model to freeze, such as embeddings or layer.0");
  table.add("unit-rules", &Flags::unit_rules,
            "Layers that become units: all, type:Linear, name:blocks.*, parameters:10000");
  table.add("sync-batch-norm", &Flags::sync_batch_norm,
            "Synchronise batch normalisation over the batches of all ranks");
  table.add("init-from", &Flags::init_weights,
            "Initial weights: a checkpoint, a .safetensors file or a torch::save archive", path_to_read());
  table
      .add(
          "init-rename", &Flags::init_rename,
          "Rules that rename tensors, FILE=MODEL: encoder.*=backbone.*,head.*= (the last leaves tensors out)")
      .needs = OptionNeed{"init-from"};
  Option& strict =
      table.add("init-strict", &Flags::init_strict,
                "false: report tensors that are missing or have another shape, instead of failing");
  strict.type = "true|false";
  strict.needs = OptionNeed{"init-from"};
}

void add_training_flags(Table& table) {
  table.begin_group("Training");
  table.add("epochs", &Flags::epochs, "Passes over the data; default 1 without --steps", above_zero())
      .is_common = true;
  table.add("steps", &Flags::steps, "Total number of optimizer steps", above_zero()).is_common = true;
  table
      .add("batch-size", &Flags::batch_size, "Samples per replica and forward pass; default 32", above_zero())
      .is_common = true;
  table.add("global-batch-size", &Flags::global_batch_size,
            "Samples per step of all replicas and accumulated passes, instead of --batch-size", above_zero());
  table.add("gradient-accumulation-steps", &Flags::accumulate, "Forward and backward passes per step",
            above_zero());
  std::vector<std::string> losses = {"auto"};
  losses.insert(losses.end(), std::begin(kLossNames), std::end(kLossNames));
  table.add("loss", &Flags::loss, "Loss function; auto: cross_entropy for classes, mse for numbers",
            one_of(losses));
  table.include(optimizer_table(), &Flags::optimizer);
  table.include(schedule_table(), &Flags::schedule);
  table.add("max-grad-norm", &Flags::clip_norm, "Clip gradients to this norm; 0: never", zero_or_more());
  table.add("early-stopping-patience", &Flags::early_stopping,
            "Validations without a better loss after which training stops; 0: never", zero_or_more());
  table.add("seed", &Flags::seed, "Seed of weights, sample order, dropout and --sample", zero_or_more());
}

void add_precision_flags(Table& table) {
  table.begin_group("Precision (docs/precision.md)");
  table
      .add("precision", &Flags::amp,
           "O0 float32; O1 autocast; O2 model in --amp-dtype, float32 master weights; O3 all in --amp-dtype",
           one_of({"O0", "O1", "O2", "O3"}))
      .is_common = true;
  table.add("amp-dtype", &Flags::amp_dtype, "The low-precision dtype", one_of({"bfloat16", "float16"}));
  table.add("loss-scale", &Flags::loss_scale,
            "dynamic, dynamic:START or a number; auto: dynamic for float16 under O1 and O2");
  table.add("keep-batchnorm-fp32", &Flags::keep_batchnorm_fp32,
            "Keep batch normalisation in float32; auto: with O2", one_of({"auto", "false", "true"}));
  table.add("master-weights", &Flags::master_weights,
            "Keep float32 master weights for the optimizer; auto: with O2",
            one_of({"auto", "false", "true"}));
  table.add("matmul", &Flags::matmul,
            "Kernels of float32 matrix products; auto: the faster ones, measured once per machine",
            one_of({"auto", "libtorch"}));
}

// Accepts the values of `rondo run`: a number, or a word that this host converts to a number.
Option process_count_option() {
  return {
      .name = "nproc-per-node",
      .help = "Processes on this host; cpu, gpu: one for each; auto: gpu if any",
      .kind = OptionKind::integer,
      .type = "N|auto|cpu|gpu",
      .allowed = {.check = [](const std::string& text,
                              const std::string& what) { launch::process_count(text, what); }},
      .set =
          [](void* flags, const std::string& text, const std::string& what) {
            Table::of(flags).nproc_per_node = launch::process_count(text, what);
            Table::of(flags).counts_processes = text == "cpu" || text == "gpu" || text == "auto";
          },
      .text = [](const void* flags) { return std::optional(option_text(Table::of(flags).nproc_per_node)); }};
}

// A device's name (env/device_name.h).
AllowedValues a_device() {
  return {.check = [](const std::string& text, const std::string& what) { parse_device_name(text, what); },
          .type = one_of({"auto", "cpu", "cuda", "cuda:N"}).type};
}

// Signals besides those that are always handled.
AllowedValues signal_names() {
  return {
      .check = [](const std::string& text, const std::string& what) { launch::parse_signals(text, what); },
      .type = "A,B"};
}

void add_process_flags(Table& table, const TrainChoices& choices) {
  OptionNeed planned{"strategy", {}};
  for (const Declaration& strategy : choices.strategies) {
    if (strategy.is_planned) planned.values.push_back(strategy.name);
  }
  table.begin_group("Processes");
  table.add(process_count_option()).is_common = true;
  table
      .add("strategy", &Flags::strategy, "Distribution strategy; auto: ddp on several processes",
           one_of(names_of(choices.strategies, true)))
      .is_common = true;
  table
      .add("mesh", &Flags::mesh,
           "Ranks per dimension (pipeline, data, context, expert, tensor), such as pipeline=2,data=2; "
           "--strategy applies to data")
      .is_common = true;
  table
      .add("profile", &Flags::profile,
           "Profile to plan with, instead of measuring; with --plan: the plan's own profile", path_to_read())
      .needs = planned;
  table.add("plan-time-limit", &Flags::plan_time_limit, "Longest search for a plan", duration()).needs =
      planned;
  table
      .add("plan-search", &Flags::meshes,
           "Dimensions that a plan may use: data, or all mesh dimensions; --mesh fixes them",
           one_of({"all", "data"}))
      .needs = planned;
  table.add("backend", &Flags::backend, "Communication engine; also mpi, nccl, path/to/module.so:name",
            an_engine(choices.engines));
  table.add("deterministic", &Flags::deterministic,
            "Sum in rank order: the same bits with every engine and host layout");
  table.add("timeout", &Flags::timeout, "Longest wait for another rank", duration());
  table.add("signals-to-handle", &Flags::signals_to_handle,
            "Also save and stop at these signals, such as USR2 (always: TERM, INT, HUP)", signal_names());
  table.add("bind-to", &Flags::bind_to, "Bind every process to its own cores or NUMA node",
            one_of({"core", "none", "numa"}));
  table.add("device", &Flags::device,
            "Device of the tensors; auto: cuda if available; cuda: the GPU of the local rank", a_device());
  table.add("activation-checkpointing", &Flags::checkpoint_activations,
            "Units to recompute in backward: none, all, every-N, or names joined by commas");
  table
      .add("memory-limit", &Flags::memory_limit,
           "Memory limit of a rank's tensors, such as 2GiB; exceeding it is an error", size_in_bytes())
      .is_common = true;
}

void add_run_flags(Table& table) {
  table.begin_group("Run directory");
  Option& directory =
      table.add("run-dir", &Flags::run_dir, "Directory of the run's files; default runs/<time>-<model>");
  directory.type = "DIR";
  directory.is_common = true;
  OptionsOf<RunLabels> labels;
  labels.begin_group("Run directory");
  labels.add("run-name", &RunLabels::name, "Name of the run in reports; default: of its directory");
  labels.add("run-tags", &RunLabels::tags, "Tags of the run, which reports filter by");
  labels.add("run-notes", &RunLabels::notes, "Notes about the run in its report");
  labels.without_flags({"run-name", "run-tags", "run-notes"});
  table.include(labels, &Flags::labels);
  table.add("resume-intact", &Flags::resume_intact,
            "As --resume, but skips damaged checkpoints and names them");
  table.add("eval-every", &Flags::eval_every, "Steps between validations; 0: after each epoch",
            zero_or_more());
  table.add("eval-batch-size", &Flags::eval_batch_size, "Samples per forward pass of a validation",
            above_zero());
  table.add("eval-batches", &Flags::eval_batches, "Batches per validation, over all ranks; 0: all",
            zero_or_more());
  table.add("checkpoint-every", &Flags::checkpoint_every, "Steps between checkpoints; 0: after each epoch",
            zero_or_more());
  table.add("keep-checkpoints", &Flags::keep, "Number of newest checkpoints to keep", above_zero());
  table.add("checkpoint-sharded", &Flags::checkpoint_in_parts,
            "Every rank writes its part of a checkpoint to a directory that hosts share");
  table.add("checkpoint-async", &Flags::checkpoint_in_background,
            "Write checkpoints in the background; implies --checkpoint-sharded");
  table.add("checkpoint-incremental", &Flags::checkpoint_incremental,
            "Link unchanged tensors to the previous checkpoint; not with --checkpoint-sharded or "
            "--checkpoint-async");
  table.add("memory-checkpoint-every", &Flags::memory_checkpoint_every,
            "Steps between in-memory checkpoints, for restarts; 0: none", zero_or_more());
  table.add("max-restarts", &Flags::max_restarts,
            "Maximum number of restarts after a failure; training resumes where it was", zero_or_more());
  table.add("log-every", &Flags::log_every, "Steps between progress lines and between rows of metrics",
            above_zero());
  table.add("trace-steps", &Flags::trace_steps, "Number of steps whose timeline goes to trace.json",
            zero_or_more());
  table.add("progress", &Flags::progress,
            "Progress as a bar, plain lines or nothing; auto: a bar on a terminal",
            one_of({"auto", "bar", "lines", "off"}));
  table.add("json", &Flags::json, "Write the result as JSON to this file; - is standard output").type =
      "FILE";
}

void add_sample_flags(Table& table) {
  const OptionNeed sample{"sample"};
  table.begin_group("Text from a trained GPT (with --run-dir)");
  table.add("sample", &Flags::sample, "Generate text after this prompt, without training").is_common = true;
  table.add("length", &Flags::length, "Number of bytes to generate", above_zero()).needs = sample;
  table
      .add("temperature", &Flags::temperature, "Sampling temperature; 0: always the most likely byte",
           zero_or_more())
      .needs = sample;
  table.add("top-k", &Flags::top_k, "Sample among the k most likely bytes; 0: all", zero_or_more()).needs =
      sample;
}

}  // namespace

OptionValues TrainFlags::options_in(const OptionTable& table) const {
  OptionValues values = options;
  std::erase_if(values, [&](const auto& each) { return table.find(each.first) == nullptr; });
  return values;
}

OptionsOf<TrainFlags> train_flags_table(const TrainChoices& choices) {
  Table table;
  add_data_flags(table, choices);
  add_model_flags(table, choices);
  add_training_flags(table);
  table.include(trainer_flags_table(choices));
  add_precision_flags(table);
  add_process_flags(table, choices);
  add_run_flags(table);
  add_sample_flags(table);
  table.without_flags(
      {"init-rename", "keep-batchnorm-fp32", "master-weights", "checkpoint-incremental", "top-k"});
  return table;
}

bool belongs_to_training(const std::string& flag) {
  static const std::vector<std::string> others = {"run-dir",
                                                  "memory-checkpoint-every",
                                                  "max-restarts",
                                                  "json",
                                                  "resume-intact",
                                                  "progress",
                                                  "sample",
                                                  "length",
                                                  "temperature",
                                                  "top-k",
                                                  "signals-to-handle",
                                                  "run-name",
                                                  "run-tags",
                                                  "run-notes"};
  return std::find(others.begin(), others.end(), flag) == others.end();
}

std::int64_t batch_size_per_replica(const TrainFlags& flags, int world_size) {
  if (!flags.global_batch_size) return *flags.batch_size;
  const std::int64_t parts = world_size * flags.replicas * flags.accumulate;
  if (*flags.global_batch_size % parts == 0) return *flags.global_batch_size / parts;
  const std::string each = flags.replicas > 1 ? str(" x ", flags.replicas, " replicas") : "";
  const std::string passes = flags.accumulate > 1 ? str(" x ", flags.accumulate, " accumulated passes") : "";
  throw UsageError(str("--global-batch-size ", *flags.global_batch_size, " does not divide by ", world_size,
                       " ranks", each, passes, "; the nearest that do are ",
                       *flags.global_batch_size / parts * parts, " and ",
                       (*flags.global_batch_size / parts + 1) * parts));
}

std::vector<std::string> data_paths(const TrainFlags& flags) {
  return flags.data_weights.empty() ? std::vector{flags.data} : split(flags.data, ',');
}

Mesh mesh_of(const TrainFlags& flags, int world_size) {
  Mesh mesh;
  if (!flags.mesh.empty()) {
    mesh = parse_mesh(flags.mesh, "--mesh");
  } else if (flags.strategy != "data" && std::find(std::begin(kMeshDimensions), std::end(kMeshDimensions),
                                                   flags.strategy) != std::end(kMeshDimensions)) {
    mesh = {{flags.strategy, world_size}};
  } else {
    return {};
  }
  return ordered_mesh(mesh, world_size);
}

std::string strategy_of_auto(bool several_processes) { return several_processes ? "ddp" : "one_device"; }

std::string strategy_name(const TrainFlags& flags, int world_size) {
  return flags.strategy == "auto" ? strategy_of_auto(world_size > 1) : flags.strategy;
}

}  // namespace rondo
