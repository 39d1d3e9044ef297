#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/mesh.h"
#include "rondo/format/run_directory.h"
#include "rondo/nn/optimizers/optimizer_options.h"
#include "rondo/options/declaration.h"
#include "rondo/options/option_table.h"
#include "rondo/train/schedule_options.h"

namespace rondo {

// The strategies, models and other parts that a training may select. A program may add its own strategies and
// engines.
struct TrainChoices {
  std::vector<Declaration> strategies;
  std::vector<Declaration> models;
  std::vector<Declaration> data_kinds;
  std::vector<Declaration> engines;
  std::vector<Declaration> log_targets;
};

// Returns all parts that rondo provides.
TrainChoices built_in_choices();

// A flag that chooses one of several entries, or a list of them, with flags of their own.
struct Choice {
  const char* flag;
  std::vector<Declaration> TrainChoices::*entries;
  bool is_list = false;
};
inline constexpr Choice kChoices[] = {{"strategy", &TrainChoices::strategies},
                                      {"model", &TrainChoices::models},
                                      {"data-kind", &TrainChoices::data_kinds},
                                      {"backend", &TrainChoices::engines},
                                      {"log-to", &TrainChoices::log_targets, /*is_list=*/true}};
inline constexpr const char* kNoLogTarget = "none";  // of --log-to

// Options of `rondo train` for metrics, epochs and what happens alongside training.
struct TrainerFlags {
  std::int64_t steps_per_epoch = 0;
  std::vector<std::string> metrics;
  std::vector<std::string> class_weights;
  bool restore_best = false;
  std::string best_of;
  std::int64_t reduce_on_plateau = 0;
  bool terminate_on_nan = false;
  std::int64_t gradient_norm_every = 0;
  double average_weights = 0;
  std::string preemption_file;
  std::int64_t trace_after = 0;
  std::vector<std::string> log_to = {"tensorboard"};
  std::string peak_flops;
};

// Returns the flags of TrainerFlags, in their own groups.
OptionsOf<TrainerFlags> trainer_flags_table(const TrainChoices& choices);

// A source of an option's value other than its default. Later enumerators override earlier ones.
enum class OptionSource { file, set, flag };
struct OptionOrigin {
  OptionSource source;
  std::string place = {};  // location of an option in a file: "run.toml:4"
};

// Environment variable with the command that the user typed, in shell syntax.
inline constexpr const char* kCommandVariable = "RONDO_COMMAND";

// Options of `rondo train`; see flags.cpp for the meaning of each.
struct TrainFlags : TrainerFlags {
  std::string data;
  std::string data_kind = "auto";
  std::vector<std::string>
      data_weights;  // weights of the files and folders in `data`, separated by commas; empty: equal weights
  double validation_fraction = 0.1;
  int loader_threads = 1;
  std::string input_sharding = "data";

  std::string model = "auto";  // until choose_model() (job.h)
  std::string model_config;
  std::string init_weights;
  std::vector<std::string> init_rename;  // FILE=MODEL
  bool init_strict = true;
  std::vector<std::string> freeze;
  std::vector<std::string> unit_rules;
  bool sync_batch_norm = false;

  std::optional<std::int64_t> epochs;
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> batch_size;
  std::optional<std::int64_t> global_batch_size;
  std::int64_t accumulate = 1;
  std::string loss = "auto";
  OptimizerOptions optimizer = {};
  ScheduleOptions schedule = {};  // the learning rate itself is the optimizer's
  double clip_norm = 0.0;
  int early_stopping = 0;
  std::uint64_t seed = 0;

  std::string amp = "O0";
  std::string amp_dtype = "bfloat16";
  std::string loss_scale = "auto";
  std::string keep_batchnorm_fp32 = "auto";
  std::string master_weights = "auto";
  std::string matmul = "auto";

  std::string strategy = "auto";
  std::string mesh;  // "pipeline=2,data=2"; empty: all ranks along one dimension
  std::string profile;
  std::string plan_time_limit = "10s";
  std::string meshes = "data";
  int nproc_per_node = 1;
  bool counts_processes = false;  // nproc_per_node was cpu, gpu or auto, converted to this host's number
  std::string backend = "auto";   // its options are in `options`, also those that stood in brackets
  bool deterministic = false;
  std::string timeout = "5min";
  std::string signals_to_handle;  // in addition to launch::stop_signals()
  std::string bind_to = "none";
  std::string device = "auto";
  std::string checkpoint_activations = "none";
  std::string memory_limit;

  std::string run_dir;
  RunLabels labels;
  bool resume = false;
  std::string resume_from;     // empty: the newest checkpoint of run_dir
  bool resume_intact = false;  // damaged checkpoints are skipped
  std::int64_t eval_every = 0;
  std::int64_t eval_batch_size = 32;
  std::int64_t eval_batches = 0;  // 0: all
  std::int64_t checkpoint_every = 0;
  int keep = 3;
  bool checkpoint_in_parts = false;
  bool checkpoint_in_background = false;
  bool checkpoint_incremental = false;
  std::int64_t memory_checkpoint_every = 0;
  int max_restarts = 0;
  std::int64_t log_every = 10;
  std::int64_t trace_steps = 20;
  std::string progress = "auto";
  std::string json;

  std::optional<std::string> sample;
  std::int64_t length = 200;
  double temperature = 0.8;
  std::int64_t top_k = 0;

  // Given options of strategies, models, kinds of data and engines, as text.
  OptionValues options;
  std::string engine = "auto";  // `backend` with its options, for InitOptions::backend
  int replicas = 1;             // number of the model's replicas per process
  bool is_planned = false;      // the strategy follows a plan
  bool print_config = false;
  bool dry_run = false;
  std::map<std::string, OptionOrigin> origins = {};  // by option; defaults have no origin
  std::vector<std::string> notes = {};  // for the user at the start: overridden options of a file
  // All options that describe a training, by flag names with '_' (without run directory and resume). As a
  // file of --config it describes the same training.
  nlohmann::ordered_json configuration = {};
  std::vector<std::string> changed_options = {};  // keys of `configuration` that differ from their defaults

  // Returns the `options` that `table` has.
  OptionValues options_in(const OptionTable& table) const;
};

// Returns the flags of the program itself, with their groups in help.
OptionsOf<TrainFlags> train_flags_table(const TrainChoices& choices);

// A flag of the command line alone, which no configuration file sets.
struct ProgramFlag {
  const char* name;
  const char* type;  // empty: a switch
  const char* group;
  const char* help;
  bool is_common;
};
inline constexpr ProgramFlag kProgramFlags[] = {
    {"resume", "[PATH]", "Run directory",
     "Continue from the newest checkpoint of --run-dir, or from a checkpoint PATH", true},
    {"config", "FILE", "Configuration (docs/configuration.md)",
     "Read options from a TOML or JSON file, such as config.json; flags override it", true},
    {"set", "NAME=VALUE", "Configuration (docs/configuration.md)",
     "Set any option by name, also one without a flag; may be repeated", true},
    {"print-config", "", "Configuration (docs/configuration.md)",
     "Print every option with its origin, as TOML for --config, and exit", false},
    {"dry-run", "", "Configuration (docs/configuration.md)",
     "Check all options, build model and strategy, print a summary, and exit", true},
    {"help", "[NAME]", "Help", "Print the most common flags; with NAME: its description and its flags",
     false},
    {"help-all", "", "Help", "Print all flags and options; with --json FILE as JSON", false},
    {"version", "", "Help", "Print the version", false}};

// Returns true if a flag describes the training, rather than this call of the program.
bool belongs_to_training(const std::string& flag);

// Samples per replica and forward pass, from --batch-size or --global-batch-size. Throws UsageError when the
// global batch does not divide.
std::int64_t batch_size_per_replica(const TrainFlags& flags, int world_size);

// Returns the files and folders of --data: several with --data-weights.
std::vector<std::string> data_paths(const TrainFlags& flags);

// Returns the mesh of `world_size` ranks, from --mesh or a --strategy that is named after a dimension; empty:
// all along "data". Throws UsageError for another number of ranks.
Mesh mesh_of(const TrainFlags& flags, int world_size);

// Returns the strategy that --strategy auto means.
std::string strategy_of_auto(bool several_processes);
// Returns the strategy's name with "auto" replaced.
std::string strategy_name(const TrainFlags& flags, int world_size);

// Returns the result of `use`, which uses the value of `flag`. The flag and its value are prepended to a
// UsageError, because library functions do not have the flag's name.
template <class Use>
auto use_flag(const std::string& flag, const std::string& value, const Use& use) {
  try {
    return use();
  } catch (const UsageError& error) {
    throw UsageError(str(flag, " ", value, ": ", error.what()));
  }
}

}  // namespace rondo
