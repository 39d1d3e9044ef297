#include "apps/train/flags.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>

#include "apps/common/command_line.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExamples = R"(Examples:
  rondo train --data texts/ --nproc-per-node 2                      a small GPT on all text below texts/, 2 processes
  rondo train --data texts/ --model gpt-25m --steps 2000 --lr 6e-4 --schedule cosine --warmup 100 --clip-norm 1
  rondo train --data mnist/ --model convnet --epochs 3 --optimizer sgd --lr 0.05 --momentum 0.9
  rondo train --data texts/ --model gpt-25m --checkpoint-activations all --memory-limit 2GiB
  rondo train --model bert --task classify --data reviews.tsv --init bert-base/ --freeze embeddings --lr 2e-5
  rondo train --data texts/ --model gpt-25m --nproc-per-node 2 --strategy planned --memory-limit 500MiB
  rondo train --run-dir runs/a --resume                             go on where the run stopped, with its settings
  rondo train --config runs/a/config.json --lr 3e-4                 the same training with another learning rate
  rondo train --run-dir runs/a --sample "The "                      text from the newest checkpoint
  rondo train --data texts/ --model gpt-25m --amp O1            bfloat16 autocast; --amp O2 --amp-dtype float16 ...
  rondo run -n 2 rondo train --data texts/                          under a launcher: every process is a rank

TERM or INT saves a checkpoint after the current step and ends with exit code 3; --resume continues.)";

// Flags that say the same thing in two ways: one on the command line makes the other in a file void.
const std::map<std::string, std::string> kAlternatives = {{"batch-size", "global-batch-size"},
                                                          {"global-batch-size", "batch-size"},
                                                          {"epochs", "steps"},
                                                          {"steps", "epochs"}};

// Flags that belong to one call and not to the training.
bool belongs_to_training(const std::string& name) {
  static const std::vector<std::string> others = {"run-dir", "json",   "config",      "progress",
                                                  "sample",  "length", "temperature", "top-k"};
  return std::find(others.begin(), others.end(), name) == others.end();
}

// Calls visit(name, field, help, group, check) for every flag but --resume.
template <class Flags, class Visit>
void visit_flags(Flags& f, const Visit& visit) {
  using namespace std::string_literals;
  const CLI::Validator any;
  const auto one_of = [](std::vector<std::string> names) {
    return CLI::Validator(CLI::IsMember(std::move(names)));
  };
  const CLI::Validator positive = CLI::PositiveNumber;
  const CLI::Validator not_negative = CLI::NonNegativeNumber;
  const CLI::Validator fraction = CLI::Range(0.0, 1.0);

  const std::string data = "Data";
  visit("data", f.data, "File or directory to train on", data, any);
  visit("data-kind", f.data_kind, "What the data is", data,
        one_of({"auto", "cifar10", "cifar100", "csv", "idx", "labelled_text", "masked_text", "text"}));
  visit("validation-fraction", f.validation_fraction, "Part kept for validation (text: the tail)", data,
        CLI::Validator(CLI::Range(0.0, 0.99)));
  visit("label-column", f.label_column,
        "csv, labelled text: name or number of the label column; default the last, or the first", data, any);
  visit("extensions", f.extensions, "text: only files with these endings, as txt,md; default all text files",
        data, any);
  visit("workers", f.workers, "Threads per rank that read ahead", data, not_negative);

  const std::string model = "Model";
  visit("model", f.model, "What to train", model,
        one_of({"bert", "bert-tiny", "convnet", "gpt", "gpt-25m", "gpt-tiny", "mlp"}));
  visit("model-config", f.model_config,
        "JSON object, or a file with one, that overrides the model's settings", model, any);
  visit("layers", f.layers, "gpt, bert: number of blocks", model, positive);
  visit("heads", f.heads, "gpt, bert: attention heads", model, positive);
  visit("width", f.width, "gpt, bert: width of the blocks", model, positive);
  visit("context", f.context, "gpt: bytes of text per sample; bert: tokens, default 128", model, positive);
  visit("dropout", f.dropout, "gpt, bert, convnet: probability of dropout", model, fraction);
  visit("task", f.task, "bert: classify labelled text, or mlm: predict hidden tokens; default classify",
        model, one_of({"classify", "mlm"}));
  visit("init", f.init,
        "bert: start from this Hugging Face folder (config.json, vocab.txt or tokenizer.json, "
        "model.safetensors)",
        model, any);
  visit("vocabulary", f.vocabulary, "bert: vocab.txt; default that of --init", model, any);
  visit("cased", f.cased, "bert: the vocabulary has capitals and accents; true or false", model, any);
  visit("freeze", f.freeze, "Parts of the model that are not trained, as embeddings or layer.0", model, any);
  visit("sync-batch-norm", f.sync_batch_norm,
        "convnet: batch normalisation over the batches of all ranks; true or false", model, any);
  visit("init-weights", f.init_weights,
        "Start from these: a checkpoint, .safetensors, or a torch::save archive", model, any);

  const std::string training = "Training";
  visit("epochs", f.epochs, "Passes over the data; default 1 without --steps", training, positive);
  visit("steps", f.steps, "Optimizer steps of the whole training", training, positive);
  visit("batch-size", f.batch_size, "Samples PER RANK in a forward pass; default 32", training, positive);
  visit("global-batch-size", f.global_batch_size,
        "Instead: samples of all ranks (and accumulated passes) per step; must divide evenly", training,
        positive);
  visit("accumulate", f.accumulate, "Forward and backward passes per step", training, positive);
  visit("optimizer", f.optimizer, "What moves the weights", training, one_of({"adam", "adamw", "sgd"}));
  visit("lr", f.lr, "Highest learning rate", training, not_negative);
  visit("schedule", f.schedule, "How the learning rate falls after warm-up", training,
        one_of({"constant", "cosine", "linear", "step"}));
  visit("warmup", f.warmup, "Steps in which the learning rate rises from 0", training, not_negative);
  visit("lr-end", f.lr_end, "linear, cosine: rate at the end as a fraction of --lr", training, fraction);
  visit("lr-step", f.lr_step, "step: steps between drops", training, positive);
  visit("lr-factor", f.lr_factor, "step: what a drop multiplies the rate with", training, fraction);
  visit("weight-decay", f.weight_decay, "Decay of weights (adamw: decoupled)", training, not_negative);
  visit("momentum", f.momentum, "sgd: momentum", training, fraction);
  visit("beta1", f.beta1, "adam, adamw: decay of the mean of gradients", training, fraction);
  visit("beta2", f.beta2, "adam, adamw: decay of the mean of squares", training, fraction);
  visit("clip-norm", f.clip_norm, "Scale gradients down to this norm; 0 is never", training, not_negative);
  visit("early-stopping", f.early_stopping, "End after so many validations without a better loss, 0 is never",
        training, not_negative);
  visit("seed", f.seed, "Of weights, order of samples and dropout; also of --sample", training, any);

  const std::string numbers = "Numbers (docs/precision.md)";
  visit("amp", f.amp, "O1 autocast; O2 model in --amp-dtype, float32 masters; O3 all in --amp-dtype", numbers,
        one_of({"O0", "O1", "O2", "O3"}));
  visit("amp-dtype", f.amp_dtype, "The narrow type", numbers, one_of({"bfloat16", "float16"}));
  visit("loss-scale", f.loss_scale, "dynamic or a number; auto: dynamic for float16 under O1 and O2", numbers,
        any);
  visit("keep-batchnorm-fp32", f.keep_batchnorm_fp32, "Batch norms in float32; auto: under O2", numbers,
        one_of({"auto", "false", "true"}));
  visit("master-weights", f.master_weights, "float32 copies for the optimizer; auto: under O2", numbers,
        one_of({"auto", "false", "true"}));
  visit("mixed-precision", f.mixed_precision,
        "Sharded: dtypes of units, as param=bfloat16,reduce=float32 (output=, cast_forward_inputs=, "
        "keep_batchnorm_fp32=); weights and optimizer stay float32",
        numbers, any);
  visit("matmul", f.matmul, "float32 matrix products: auto is the faster kernels, measured once a machine",
        numbers, one_of({"auto", "default"}));

  const std::string processes = "Processes";
  // An engine's name, with its arguments in brackets, or that of one in a shared module.
  const CLI::Validator engine(
      [](std::string& text) {
        constexpr std::array known = {"auto", "gloo", "hierarchical", "mpi", "native", "nccl"};
        const std::string name = text.substr(0, text.find('('));
        const bool good = text.find(".so:") != std::string::npos ||
                          std::find(known.begin(), known.end(), name) != known.end();
        return good ? std::string()
                    : rondo::str("'", text, "' is not one of ", rondo::join(known, ", "),
                                 ", or path/to/module.so:name");
      },
      "{auto,gloo,hierarchical,native}");
  visit("nproc-per-node", f.nproc_per_node, "Start this many processes on this host", processes, positive);
  visit("strategy", f.strategy, "How training is spread; auto: ddp on several processes", processes,
        one_of({"auto", "ddp", "fsdp", "hsdp", "multi_worker_mirrored", "one_device", "planned", "random",
                "zero1", "zero2", "zero3", "zero3_keep"}));
  visit("plan", f.plan,
        "planned: the file that `rondo plan` wrote; default: measure, and plan for --memory-limit", processes,
        any);
  visit("profile", f.profile,
        "planned: this profile of the job instead of measuring; with --plan: must be its own", processes,
        any);
  visit("plan-time-limit", f.plan_time_limit, "planned: longest search for a plan", processes, any);
  visit("strategy-seed", f.strategy_seed, "random: of the strategy drawn for each unit; default --seed",
        processes, any);
  visit("shard-ranks", f.shard_ranks, "hsdp: ranks that share a copy of the model; 0 is those of a host",
        processes, not_negative);
  visit("reduce-every-pass", f.reduce_every_pass,
        "Sharded, with --accumulate: add up gradients as shards, not whole", processes, any);
  visit("comm-schedule", f.comm_schedule, "Sharded: order of communication between hosts", processes,
        one_of({"fifo", "priority", "random"}));
  visit("comm-seed", f.comm_seed, "--comm-schedule random: of the order", processes, any);
  visit("block-size", f.block_size, "Sharded: bytes of a unit that travel at a time between hosts; 0 is all",
        processes, any);
  visit("credit", f.credit, "Sharded: bytes under way at a time between hosts; 0 is no limit", processes,
        any);
  visit("fuse-bytes", f.fuse_bytes,
        "Sharded: units that are together no larger travel as one between hosts; 0 is none", processes, any);
  visit("prefetch", f.prefetch, "Sharded: units gathered ahead of their use", processes, not_negative);
  visit("gradients-in-flight", f.gradients_in_flight,
        "Sharded: units whose gradients travel at a time between hosts; 0 is no limit", processes,
        not_negative);
  visit("reshard-after-forward", f.reshard_after_forward,
        "zero3: true, false, or among how many neighbouring ranks parameters stay sharded until backward",
        processes, any);
  visit("offload", f.offload,
        "Sharded: directory for memory-mapped files in place of memory; best a fast local disk", processes,
        any);
  visit("offload-what", f.offload_what,
        "What goes there: parameters (the rank's shards), optimizer (its state)", processes,
        one_of({"parameters", "optimizer"}));
  visit("backend", f.backend, "Communication engine; also mpi, nccl, path/to/module.so:name", processes,
        engine);
  visit("reproducible", f.reproducible,
        "Add in the order of ranks, whatever the engine and the hosts: the same bits everywhere", processes,
        any);
  visit("timeout", f.timeout, "Longest wait for another rank", processes, any);
  visit("bind-to", f.bind_to, "Give every process its own cores or NUMA nodes", processes,
        one_of({"core", "none", "numa"}));
  visit("device", f.device, "Where tensors live; auto: cuda if there is one", processes,
        one_of({"auto", "cpu", "cuda"}));
  visit("bucket-size", f.bucket_size, "ddp: gradients are reduced in buckets of this size", processes, any);
  visit("codec", f.codec,
        "ddp: how gradients travel: none, float16, bfloat16, int8, top_k[:FRACTION], "
        "power_sgd[:rank=R,start=S] "
        "or a hook of docs/codecs.md",
        processes, any);
  visit(
      "checkpoint-activations", f.checkpoint_activations,
      "Units that keep only their inputs after forward and compute again in backward: none, all, every-N, or "
      "names joined by commas",
      processes, any);
  visit("memory-limit", f.memory_limit,
        "Most memory for a rank's tensors, as 2GiB; an allocation beyond it is an error that says what is "
        "alive",
        processes, any);
  visit("check-parameters-every", f.check_parameters_every,
        "ddp: steps between checks that ranks agree, 0 is never", processes, not_negative);

  const std::string run = "Run directory";
  visit("run-dir", f.run_dir, "Where the run's files go; default runs/<time>-<model>", run, any);
  visit("eval-every", f.eval_every, "Steps between validations; 0 is after each epoch", run, not_negative);
  visit("eval-batch-size", f.eval_batch_size, "Samples per forward pass of a validation", run, positive);
  visit("checkpoint-every", f.checkpoint_every, "Steps between checkpoints; 0 is after each epoch", run,
        not_negative);
  visit("keep", f.keep, "Newest checkpoints that stay", run, positive);
  visit("log-every", f.log_every, "Steps between lines of progress and writes of metrics", run, positive);
  visit("trace-steps", f.trace_steps, "First steps whose timeline goes to trace.json", run, not_negative);
  visit("progress", f.progress, "A bar, plain lines or nothing; auto: a bar on a terminal", run,
        one_of({"auto", "bar", "lines", "off"}));
  visit("json", f.json, "Write the result as JSON to this file; - is standard output", run, any);
  visit("config", f.config, "JSON file of flags, as the run directory's config.json", run, any);

  const std::string sampling = "Text from a trained GPT (with --run-dir)";
  visit("sample", f.sample, "Continue this text, nothing is trained", sampling, any);
  visit("length", f.length, "Bytes to add", sampling, positive);
  visit("temperature", f.temperature, "0 takes the likeliest byte, 1 draws as the model says", sampling,
        not_negative);
  visit("top-k", f.top_k, "Draw among the k likeliest, 0 is all", sampling, not_negative);
}

void add_option(CLI::App& app, const std::string& name, auto& field, const std::string& help,
                const std::string& group, const CLI::Validator& check) {
  if constexpr (std::is_same_v<std::decay_t<decltype(field)>, bool>) {
    app.add_flag("--" + name, field, help)->group(group);
    return;
  }
  CLI::Option* option = app.add_option("--" + name, field, help)->group(group)->check(check);
  if constexpr (std::is_same_v<std::decay_t<decltype(field)>, std::vector<std::string>>) {
    option->delimiter(',')->expected(1, 1 << 20)->allow_extra_args(false);
  } else {
    option->take_last();
  }
  if constexpr (!requires { field.has_value(); }) option->capture_default_str();
}

std::string flag_text(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// The file's entries as arguments. Throws UsageError for what is no flag of a training.
std::vector<std::string> arguments_of_file(const std::string& path,
                                           const std::vector<std::string>& command_line) {
  std::ifstream file(path);
  if (!file) throw UsageError(str("--config ", path, ": ", errno_text(errno)));
  const nlohmann::json document = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) throw UsageError(str("--config ", path, ": expected a JSON object of flags"));

  TrainFlags known;
  std::vector<std::string> names;
  visit_flags(known, [&](const std::string& name, const auto&...) { names.push_back(name); });
  const auto on_command_line = [&](const std::string& name) {
    return std::any_of(command_line.begin(), command_line.end(), [&](const std::string& argument) {
      return argument == "--" + name || argument.starts_with("--" + name + "=");
    });
  };
  std::vector<std::string> arguments;
  for (const auto& [key, value] : document.items()) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw UsageError(str("--config ", path, ": '", key, "' is not a flag of rondo train"));
    }
    if (value.is_null() || value == "" || on_command_line(name)) continue;
    const auto alternative = kAlternatives.find(name);
    if (alternative != kAlternatives.end() && on_command_line(alternative->second)) continue;
    if (value.is_array()) {
      std::vector<std::string> items;
      for (const auto& item : value) items.push_back(flag_text(item));
      if (!items.empty()) arguments.push_back(str("--", name, "=", join(items, ",")));
    } else {
      arguments.push_back(str("--", name, "=", flag_text(value)));
    }
  }
  return arguments;
}

// The value of a flag on a command line that has not been parsed yet; empty when it is not there.
std::string raw_value(const std::vector<std::string>& arguments, const std::string& flag) {
  std::string value;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with(flag + "=")) value = arguments[i].substr(flag.size() + 1);
    if (arguments[i] == flag && i + 1 < arguments.size()) value = arguments[i + 1];
  }
  return value;
}

// Fills in what one flag says about another, and refuses contradictions.
void complete(TrainFlags& flags, bool resume_given, const std::vector<std::string>& resume_values) {
  flags.resume = resume_given;
  if (!resume_values.empty()) flags.resume_from = resume_values.front();
  if (flags.sample) {
    if (flags.run_dir.empty())
      throw UsageError("--sample needs --run-dir, the directory of a run that trained a GPT");
    return;
  }
  if (flags.data.empty()) throw UsageError("--data is missing: the file or directory to train on");
  std::error_code error;
  const fs::file_status status = fs::status(flags.data, error);
  if (!fs::exists(status)) throw UsageError(str("--data ", flags.data, ": no such file or directory"));
  if (fs::is_regular_file(status) && fs::file_size(flags.data, error) == 0) {
    throw UsageError(str("--data ", flags.data, ": the file is empty"));
  }
  if (flags.resume && flags.resume_from.empty() && flags.run_dir.empty()) {
    throw UsageError("--resume needs --run-dir, or the path of a checkpoint");
  }
  if (flags.batch_size && flags.global_batch_size) {
    throw UsageError(str("--batch-size ", *flags.batch_size, " (per rank) and --global-batch-size ",
                         *flags.global_batch_size, " exclude each other"));
  }
  if (!flags.batch_size && !flags.global_batch_size) flags.batch_size = 32;
  parse_duration(flags.timeout, "--timeout");
  parse_bytes(flags.bucket_size, "--bucket-size");
  parse_duration(flags.plan_time_limit, "--plan-time-limit");
  if (!flags.memory_limit.empty()) parse_bytes(flags.memory_limit, "--memory-limit");
}

std::string with_dashes(std::string argument) {
  if (!argument.starts_with("--")) return argument;
  std::replace(argument.begin(), std::find(argument.begin(), argument.end(), '='), '_', '-');
  return argument;
}

}  // namespace

TrainCommandLine::TrainCommandLine()
    : app_("Trains a built-in model on your data, on one process or many.", "rondo train") {
  app_.footer(kExamples);
  visit_flags(flags_, [this](const std::string& name, auto& field, const auto&... of_flag) {
    add_option(app_, name, field, of_flag...);
  });
  app_.add_option("--resume", "Continue from the newest checkpoint of --run-dir, or from a checkpoint PATH")
      ->type_name("[PATH]")
      ->expected(0, 1)
      ->group("Run directory");
}

std::vector<std::string> TrainCommandLine::with_configuration(
    const std::vector<std::string>& arguments) const {
  std::string file = raw_value(arguments, "--config");
  const bool resumes = std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--resume" || argument.starts_with("--resume=");
  });
  if (file.empty() && resumes) {
    const fs::path own = fs::path(raw_value(arguments, "--run-dir")) / "config.json";
    if (fs::exists(own)) file = own;
  }
  if (file.empty()) return arguments;
  std::vector<std::string> all = arguments_of_file(file, arguments);
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

int TrainCommandLine::run(int argc, const char* const* argv,
                          const std::function<int(const TrainFlags&)>& body) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) arguments.push_back(with_dashes(argv[i]));
  std::vector<const char*> words = {argv[0]};
  try {
    arguments = with_configuration(arguments);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\n", app_.get_name().c_str(), error.what());
    return static_cast<int>(ExitCode::usage);
  }
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  return run_command_line(app_, static_cast<int>(words.size()), words.data(), [&] {
    const CLI::Option* resume = app_.get_option("--resume");
    std::vector<std::string> resume_values = resume->results();
    // CLI11 gives an option without its optional value the text "true" or nothing, depending on its version.
    std::erase_if(resume_values, [](const std::string& value) { return value.empty() || value == "true"; });
    complete(flags_, resume->count() > 0, resume_values);
    return body(flags_);
  });
}

nlohmann::ordered_json to_json(const TrainFlags& flags) {
  nlohmann::ordered_json document = nlohmann::ordered_json::object();
  visit_flags(flags, [&](std::string name, const auto& field, const auto&...) {
    if (!belongs_to_training(name)) return;
    std::replace(name.begin(), name.end(), '-', '_');
    if constexpr (requires { field.has_value(); }) {
      if (field.has_value()) document[name] = *field;
    } else {
      document[name] = field;
    }
  });
  return document;
}

std::int64_t batch_size_per_rank(const TrainFlags& flags, int world_size) {
  if (!flags.global_batch_size) return *flags.batch_size;
  const std::int64_t parts = world_size * flags.accumulate;
  if (*flags.global_batch_size % parts == 0) return *flags.global_batch_size / parts;
  const std::string passes = flags.accumulate > 1 ? str(" x ", flags.accumulate, " accumulated passes") : "";
  throw UsageError(str("--global-batch-size ", *flags.global_batch_size, " does not divide by ", world_size,
                       " ranks", passes, "; the nearest that do are ",
                       *flags.global_batch_size / parts * parts, " and ",
                       (*flags.global_batch_size / parts + 1) * parts));
}

std::string strategy_name(const TrainFlags& flags, int world_size) {
  if (flags.strategy != "auto") return flags.strategy;
  return world_size > 1 ? "ddp" : "one_device";
}

}  // namespace rondo
