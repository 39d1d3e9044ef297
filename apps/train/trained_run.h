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

// What `rondo train` has left in a run directory, for programs that use the model.
namespace rondo {

struct TrainedRun {
  TrainFlags flags;  // of the training, with what was given in their place
  std::filesystem::path checkpoint;
  std::int64_t step = 0;             // of the checkpoint
  bool is_average = false;           // the checkpoint was chosen, and is of averaged weights
  nlohmann::json model_config = {};  // complete
  std::string data_kind = {};        // that was trained on
  KnownData known = {};              // of the data that was trained on
};

// The weights that a run has learnt: its newest checkpoint, or the average of that step, where there is one.
struct LearntWeights {
  std::filesystem::path checkpoint;
  bool is_average = false;
};
LearntWeights learnt_weights(const std::filesystem::path& run_dir);

// Says on standard error that these are averaged weights; nothing of others.
void say_average(bool is_average, const std::filesystem::path& checkpoint);

// `given` are flags of `rondo train` in place of the run's own; `checkpoint` one of the run's in place of
// learnt_weights(). Throws UsageError for what is no run directory, DataError for a damaged one.
TrainedRun open_run(const std::string& run_dir, const std::string& checkpoint, const OptionValues& given,
                    bool needs_data);

// The model with the checkpoint's weights, in float32 on the CPU. A model of one's own is loaded from the
// file that the run names, or --model in its place: its code runs. Throws DataError for the weights of
// another model.
Model load_run_model(const TrainedRun& run);

// The data that the model is to judge: what it was not trained on, where the files or the run tell the two
// apart, else all of it. Throws DataError for data of another form than the model's.
std::shared_ptr<const Dataset> open_run_data(const TrainedRun& run);

// What data.json says of a data set that is trained on.
nlohmann::ordered_json describe_data(const DatasetInfo& info);

// Which trained model a program uses, and on what: arguments that evaluate, predict and export share.
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
  // open_run(). What stands under --data is all for the model to judge.
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

// How many processes a program runs on, and how they communicate.
struct ProcessArguments {
  int processes = 1;
  std::string backend = "auto";

  void add_flags(CLI::App& app);
};

// Runs `use` with what `arguments` name: in this process where it is alone or one of several, else in so many
// new ones of this program with the same words. Failures before `use`, and JobErrors of it, are one error for
// the job. Returns the exit code.
int use_run(const RunArguments& arguments, const ProcessArguments& processes,
            const std::vector<std::string>& words, const std::function<void(OpenedRun&)>& use);

}  // namespace rondo
