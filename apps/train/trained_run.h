#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/train/flags.h"
#include "rondo/backend/context.h"
#include "rondo/data/open.h"
#include "rondo/models/model.h"

// The result of `rondo train` in a run directory, for programs that use the model.
namespace rondo {

struct TrainedRun {
  TrainFlags flags;  // of the training, with overrides
  std::filesystem::path checkpoint;
  std::int64_t step = 0;             // step of the checkpoint
  bool is_average = false;           // averaged weights, chosen because no checkpoint was named
  nlohmann::json model_config = {};  // complete
  std::string data_kind = {};        // kind of the training data
  KnownData known = {};              // properties of the training data
};

// A run's learnt weights: its newest checkpoint, or the average of that step, if there is one.
struct LearntWeights {
  std::filesystem::path checkpoint;
  bool is_average = false;
};
LearntWeights learnt_weights(const std::filesystem::path& run_dir);

// Prints to standard error that these are averaged weights; prints nothing for others.
void say_average(bool is_average, const std::filesystem::path& checkpoint);

// Opens a run. `given` are flags of `rondo train` that override the run's; `checkpoint` replaces
// learnt_weights(). Throws UsageError if `run_dir` is no run directory, DataError if it is damaged.
TrainedRun open_run(const std::string& run_dir, const std::string& checkpoint, const OptionValues& given,
                    bool needs_data);

// Returns the model with the checkpoint's weights, in float32 on the CPU. A custom model is loaded from the
// file that the run or --model names: its code runs. Throws DataError for the weights of another model.
Model load_run_model(const TrainedRun& run);

// Returns the data to evaluate the model on: held-out data if the files or the run define it, else all data.
// Throws DataError for data whose shape does not fit the model.
std::shared_ptr<const Dataset> open_run_data(const TrainedRun& run);

// Returns the content of data.json for a training data set.
nlohmann::ordered_json describe_data(const DatasetInfo& info);

// The trained model of a program and its data: arguments that evaluate, predict and export share.
struct RunArguments {
  std::string run_dir;
  std::string checkpoint;
  std::string model;
  std::string data;
  std::string data_kind;
  std::string device = "auto";

  void add_model_flags(CLI::App& app);
  void add_data_flags(CLI::App& app, const std::string& help_of_data);
  static void add_batch_size_flag(CLI::App& app, std::int64_t& batch_size);
  // Calls open_run(). All data of --data is for evaluation.
  TrainedRun open(bool needs_data) const;
};

// A trained model and data for it, on each rank of a job.
struct OpenedRun {
  Context context;
  TrainedRun run;
  std::shared_ptr<const Dataset> data;
  Model model;  // on the CPU
  c10::Device device = c10::kCPU;
};

// Number of processes of a program, and their communication engine.
struct ProcessArguments {
  int processes = 1;
  std::string backend = "auto";

  void add_flags(CLI::App& app);
};

// Runs `use` with the run of `arguments`: in this process if it is single or one of several, else in new
// processes of this program with the same words. Failures before `use`, and JobErrors in it, are one error
// for the job. Returns the exit code.
int use_run(const RunArguments& arguments, const ProcessArguments& processes,
            const std::vector<std::string>& words, const std::function<void(OpenedRun&)>& use);

}  // namespace rondo
