#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/train/choices.h"
#include "apps/train/trainer_flags.h"
#include "rondo/env/mesh.h"

namespace rondo {

// What `rondo train` can be told; see flags.cpp for the meaning of each.
struct TrainFlags : TrainerFlags {
  std::string data;
  std::string data_kind = "auto";
  std::vector<std::string>
      data_weights;  // of the files and folders in `data`, with commas between; empty: one
  double validation_fraction = 0.1;
  int loader_threads = 1;
  std::string input_sharding = "data";

  std::string model = "auto";  // until choose_model() (job.h)
  std::string model_config;
  std::string init_weights;
  std::vector<std::string> init_rename;  // FILE=MODEL
  bool init_partial = false;
  std::vector<std::string> freeze;
  std::vector<std::string> unit_rules;
  bool sync_batch_norm = false;

  std::optional<std::int64_t> epochs;
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> batch_size;
  std::optional<std::int64_t> global_batch_size;
  std::int64_t accumulate = 1;
  std::string loss = "auto";
  std::string optimizer = "adamw";
  double lr = 1e-3;
  double weight_decay = 0.0;
  double momentum = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  std::string schedule = "constant";
  std::int64_t warmup = 0;
  double lr_end = 0.0;
  std::int64_t lr_step = 1000;
  double lr_factor = 0.1;
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
  bool counts_processes = false;  // nproc_per_node is what this host has of cpu, gpu or auto
  std::string backend = "auto";   // its options are in `options`, also those that stood in brackets
  bool deterministic = false;
  std::string timeout = "5min";
  std::string signals_to_handle;  // besides launch::stop_signals()
  std::string bind_to = "none";
  std::string device = "auto";
  std::string checkpoint_activations = "none";
  std::string memory_limit;

  std::string run_dir;
  bool resume = false;
  std::string resume_from;     // empty: the newest checkpoint of run_dir
  bool resume_intact = false;  // damaged checkpoints are passed over
  std::int64_t eval_every = 0;
  std::int64_t eval_batch_size = 32;
  std::int64_t eval_batches = 0;  // 0: all
  std::int64_t checkpoint_every = 0;
  int keep = 3;
  bool checkpoint_in_parts = false;
  bool checkpoint_in_background = false;
  bool checkpoint_incremental = false;
  std::int64_t replica_every = 0;
  int max_restarts = 0;
  std::int64_t log_every = 10;
  std::int64_t trace_steps = 20;
  std::string progress = "auto";
  std::string json;
  std::string config;

  std::optional<std::string> sample;
  std::int64_t length = 200;
  double temperature = 0.8;
  std::int64_t top_k = 0;

  // What was given of the options of strategies, models, kinds of data and engines, as text.
  OptionValues options;
  std::string engine = "auto";  // `backend` with its options, for InitOptions::backend
  int replicas = 1;             // of the model in each process, as the strategy takes its options
  bool is_planned = false;      // the strategy follows a plan
  // All of this that describes a training, by flag names with '_' (no run directory, no resume). Given back
  // with --config it means the same training.
  nlohmann::ordered_json configuration = {};

  // `options`, as far as `table` has them.
  OptionValues options_in(const OptionTable& table) const;
};

// The flags that are no strategy's, model's, kind of data's or engine's, with their groups in help.
OptionsOf<TrainFlags> train_flags_table(const TrainChoices& choices);

// Whether a flag describes the training, rather than this call of the program.
bool belongs_to_training(const std::string& flag);

// Samples per replica and forward pass, from --batch-size or --global-batch-size. Throws UsageError when the
// global batch does not divide.
std::int64_t batch_size_per_replica(const TrainFlags& flags, int world_size);

// The files and folders of --data: several with --data-weights.
std::vector<std::string> data_paths(const TrainFlags& flags);

// How `world_size` ranks share the work, from --mesh or a --strategy that is named after a dimension; empty:
// all along "data". Throws UsageError for another number of ranks.
Mesh mesh_of(const TrainFlags& flags, int world_size);

// What --strategy auto is.
std::string strategy_of_auto(bool several_processes);
// The strategy's name with "auto" replaced.
std::string strategy_name(const TrainFlags& flags, int world_size);

}  // namespace rondo
