#include "apps/train/trained_run.h"

#include <torch/types.h>

#include "apps/train/choices.h"
#include "apps/train/job.h"
#include "apps/train/train_command_line.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/format/checkpoint_choice.h"
#include "rondo/models/model_file.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

void read_data_description(const fs::path& path, TrainedRun& run) {
  if (!fs::exists(path)) return;  // of a run of an earlier version
  const nlohmann::json document = read_json_file(path);
  try {
    run.data_kind = document.at("kind").get<std::string>();
    // A sample is as long as it was; the model may know longer ones.
    if (run.data_kind == "text" || run.data_kind == "tokens") {
      if (run.data_kind == "text" && document.at("classes") == 256)
        run.flags.of_model.init.clear();  // else it may have the tokenizer
      run.flags.of_model.context = document.at("input_shape").at(0).get<std::int64_t>();
    }
    run.known.class_names = document.at("class_names").get<std::vector<std::string>>();
    run.known.mean = document.at("mean").get<std::vector<double>>();
    run.known.deviation = document.at("deviation").get<std::vector<double>>();
  } catch (const nlohmann::json::exception& error) {
    throw DataError(
        str(path.string(), ": expected kind, input_shape, class_names, mean and deviation: ", error.what()));
  }
  if (run.known.mean.size() != run.known.deviation.size())
    throw DataError(str(path.string(), ": ", run.known.mean.size(), " means and ", run.known.deviation.size(),
                        " deviations, expected as many"));
}

// Classes may be fewer than the model's, where data says of itself how many it has.
void check_data_fits(const DatasetInfo& info, const nlohmann::json& config) {
  const nlohmann::json form = info.model_config();
  for (const auto& [key, value] : form.items()) {
    if (key == "classes" || key == "context" || !config.contains(key) || config.at(key) == value) continue;
    if (key == "vocabulary" && value <= config.at(key)) continue;
    throw DataError(str(info.source, ": its ", key, " is ", value.dump(), ", the model's is ",
                        config.at(key).dump(), "; give data of the form that the run was trained on"));
  }
}

}  // namespace

TrainedRun open_run(const std::string& run_dir, const std::string& checkpoint, const OptionValues& given,
                    bool needs_data) {
  if (!fs::exists(fs::path(run_dir) / "config.json"))
    throw UsageError(str("RUN_DIR ", run_dir,
                         ": expected the run directory of a `rondo train`, and it has no config.json"));
  TrainedRun run;
  run.flags = flags_of_run(FlagSet(built_in_choices()), run_dir, given, needs_data);
  read_data_description(fs::path(run_dir) / "data.json", run);
  if (!run.data_kind.empty() && !given.contains("data-kind")) run.flags.data_kind = run.data_kind;
  run.checkpoint = find_checkpoint(checkpoint.empty() ? run_dir : checkpoint);
  const nlohmann::json values = read_checkpoint_values(run.checkpoint);
  try {
    run.model_config = values.at("model").at("config");
    run.step = values.at("step").get<std::int64_t>();
  } catch (const nlohmann::json::exception&) {
    throw DataError(
        str(run.checkpoint.string(), ": its values name no model and step; it is not of a training"));
  }
  return run;
}

Model load_run_model(const TrainedRun& run) {
  Model model = open_model(run.flags.model, run.model_config);
  NamedTensors weights = read_weights(run.checkpoint);
  // A run at opt level O3 has kept its weights in the type it trained in.
  for (NamedTensor& each : weights) {
    if (each.tensor.is_floating_point()) each.tensor = each.tensor.to(at::kFloat);
  }
  prepare_assign(named_tensors(*model.module), weights, run.checkpoint.string())();
  return model;
}

std::shared_ptr<const Dataset> open_run_data(const TrainedRun& run) {
  const OpenedData data = open_training_data(run.flags, model_overrides(run.flags), run.known);
  check_data_fits(data.train->info(), run.model_config);
  return data.validation ? data.validation : data.train;
}

nlohmann::ordered_json describe_data(const DatasetInfo& info) {
  return {{"kind", info.kind},       {"input_shape", info.input_shape},
          {"classes", info.classes}, {"class_names", info.class_names},
          {"mean", info.mean},       {"deviation", info.deviation}};
}

}  // namespace rondo
