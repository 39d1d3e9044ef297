#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace rondo {

// What `rondo train` can be told; see flags.cpp for the meaning of each.
struct TrainFlags {
  std::string data;
  std::string data_kind = "auto";
  double validation_fraction = 0.1;
  std::string label_column;
  std::vector<std::string> extensions;
  int workers = 1;

  std::string model = "gpt-tiny";
  std::string model_config;
  std::optional<std::int64_t> layers;
  std::optional<std::int64_t> heads;
  std::optional<std::int64_t> width;
  std::optional<std::int64_t> context;
  std::optional<double> dropout;
  std::string init_weights;
  std::string task;  // empty: classify for bert
  std::string init;
  std::string vocabulary;
  bool cased = false;
  std::vector<std::string> freeze;
  bool sync_batch_norm = false;

  std::optional<std::int64_t> epochs;
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> batch_size;
  std::optional<std::int64_t> global_batch_size;
  std::int64_t accumulate = 1;
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
  std::string mixed_precision;

  std::string strategy = "auto";
  std::string plan;
  std::string profile;
  std::string plan_time_limit = "10s";
  std::optional<std::uint64_t> strategy_seed;  // empty: seed
  int shard_ranks = 0;
  bool reduce_every_pass = false;
  std::string comm_schedule = "priority";
  std::uint64_t comm_seed = 0;
  std::string block_size = "4MiB";
  std::string credit = "16MiB";
  std::string fuse_bytes = "0";
  int prefetch = 2;
  int gradients_in_flight = 2;
  std::string reshard_after_forward = "true";
  std::string offload;
  std::vector<std::string> offload_what = {"parameters", "optimizer"};
  int nproc_per_node = 1;
  std::string backend = "auto";
  bool reproducible = false;
  std::string timeout = "5min";
  std::string bind_to = "none";
  std::string device = "auto";
  std::string bucket_size = "25MiB";
  int check_parameters_every = 0;
  std::string codec = "none";
  std::string checkpoint_activations = "none";
  std::string memory_limit;

  std::string run_dir;
  bool resume = false;
  std::string resume_from;  // empty: the newest checkpoint of run_dir
  std::int64_t eval_every = 0;
  std::int64_t eval_batch_size = 32;
  std::int64_t checkpoint_every = 0;
  int keep = 3;
  std::int64_t log_every = 10;
  std::int64_t trace_steps = 20;
  std::string progress = "auto";
  std::string json;
  std::string config;

  std::optional<std::string> sample;
  std::int64_t length = 200;
  double temperature = 0.8;
  std::int64_t top_k = 0;
};

// The command line of `rondo train`, with the configuration file (--config, or with --resume the run's own)
// underneath: flags on the command line override those in the file.
class TrainCommandLine {
 public:
  TrainCommandLine();

  // Parses; prints help or an error and returns the exit code if that is all there is to do.
  // Then runs `body` with the flags and returns its exit code; exceptions become exit codes as in
  // run_command_line.
  int run(int argc, const char* const* argv, const std::function<int(const TrainFlags&)>& body);

 private:
  std::vector<std::string> with_configuration(const std::vector<std::string>& arguments) const;

  CLI::App app_;
  TrainFlags flags_;
};

// The flags that describe a training as JSON: an object of flag names with '_' (no run directory, no resume).
// Given back with --config it means the same training.
nlohmann::ordered_json to_json(const TrainFlags& flags);

// Samples per rank and forward pass, from --batch-size or --global-batch-size. Throws UsageError when the
// global batch does not divide.
std::int64_t batch_size_per_rank(const TrainFlags& flags, int world_size);

// The strategy's name with "auto" replaced: ddp for several processes.
std::string strategy_name(const TrainFlags& flags, int world_size);

}  // namespace rondo
