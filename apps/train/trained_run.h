#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/train/flags.h"
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

}  // namespace rondo
