#include "apps/train/trained_run.h"

#include <torch/types.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "apps/common/flag_checks.h"
#include "apps/common/job_flags.h"
#include "apps/train/flags.h"
#include "apps/train/job.h"
#include "apps/train/rank.h"
#include "apps/train/train_command_line.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/env/environment.h"
#include "rondo/env/identity.h"
#include "rondo/format/checkpoint_files.h"
#include "rondo/launch/job.h"
#include "rondo/models/model_file.h"
#include "rondo/train/agreement.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

void read_data_description(const fs::path& path, TrainedRun& run) {
  if (!fs::exists(path)) return;  // missing in runs of earlier versions of rondo
  const std::string file = path.string();
  const nlohmann::json document = read_json_file(path);
  const auto entry = [&](const char* key) -> const nlohmann::json& {
    return json_member(document, key, file);
  };
  const auto numbers = [&](const char* key) {
    std::vector<double> result;
    for (const nlohmann::json& number : json_list(entry(key), json_place(file, key)))
      result.push_back(json_number(number, json_place(file, key)));
    return result;
  };
  run.data_kind = json_text(entry("kind"), json_place(file, "kind"));
  // Samples have the length of the training; the model may support longer ones.
  if (run.data_kind == "text" || run.data_kind == "tokens") {
    if (run.data_kind == "text" && entry("classes") == 256)
      run.flags.options.erase("from-pretrained");  // else it may have the tokenizer
    const nlohmann::json& shape = json_list(entry("input_shape"), json_place(file, "input_shape"));
    if (shape.empty()) throw DataError(str(json_place(file, "input_shape"), " is empty"));
    run.flags.options["seq-len"] =
        str(json_integer(shape.front(), json_place(file, "input_shape"), 1, std::int64_t{1} << 31));
  }
  for (const nlohmann::json& name : json_list(entry("class_names"), json_place(file, "class_names")))
    run.known.class_names.push_back(json_text(name, json_place(file, "class_names")));
  run.known.source = file;
  run.known.mean = numbers("mean");
  run.known.deviation = numbers("deviation");
  for (const double deviation : run.known.deviation) {
    if (!(deviation > 0))
      throw DataError(str(json_place(file, "deviation"), ": ", deviation, " is not above 0"));
  }
  if (run.known.mean.size() != run.known.deviation.size())
    throw DataError(str(file, ": ", run.known.mean.size(), " means and ", run.known.deviation.size(),
                        " deviations, expected as many"));
}

// Classes may be fewer than the model's if the data itself defines their number.
void check_data_fits(const DatasetInfo& info, const TrainedRun& run) {
  const nlohmann::json& config = run.model_config;
  const nlohmann::json form = info.model_config();
  for (const auto& [key, value] : form.items()) {
    if (key == "classes" || key == "context" || !config.contains(key) || config.at(key) == value) continue;
    if (key == "vocabulary" && value <= config.at(key)) continue;
    throw DataError(str(info.source, ": its ", key, " is ", value.dump(), ", the model's (in ",
                        run.checkpoint.string(), ") is ", config.at(key).dump(),
                        "; give data of the form that the run was trained on"));
  }
}

}  // namespace

LearntWeights learnt_weights(const fs::path& run_dir) {
  fs::path newest = find_checkpoint(run_dir);
  fs::path average = run_dir / "average" / newest.filename();
  if (is_step_directory(newest) && fs::exists(average)) return {std::move(average), true};
  return {std::move(newest), false};
}

void say_average(bool is_average, const fs::path& checkpoint) {
  if (is_average)
    std::fprintf(stderr, "averaged weights of %s\n", printable(checkpoint.string(), 1000).c_str());
}

TrainedRun open_run(const std::string& run_dir, const std::string& checkpoint, const OptionValues& given,
                    bool needs_data) {
  if (!fs::exists(fs::path(run_dir) / "config.json"))
    throw UsageError(str("RUN_DIR ", run_dir,
                         ": expected the run directory of a `rondo train`, but it has no config.json"));
  TrainedRun run;
  run.flags = flags_of_run(FlagSet(built_in_choices()), run_dir, given, needs_data);
  read_data_description(fs::path(run_dir) / "data.json", run);
  if (!run.data_kind.empty() && !given.contains("data-kind")) run.flags.data_kind = run.data_kind;
  if (checkpoint.empty()) {
    const LearntWeights learnt = learnt_weights(run_dir);
    run.checkpoint = learnt.checkpoint;
    run.is_average = learnt.is_average;
  } else {
    run.checkpoint = find_checkpoint(checkpoint);
  }
  const nlohmann::json values = read_checkpoint_values(run.checkpoint);
  if (!values.is_object() || !values.contains("model") || !values.contains("step")) {
    throw DataError(str(run.checkpoint.string(), ": it names no model and no step, so no training wrote it"));
  }
  const std::string file = (run.checkpoint / "state.json").string(), model = json_place(file, "model");
  run.model_config = json_member(values.at("model"), "config", model);
  if (!run.model_config.is_null()) json_object(run.model_config, json_place(model, "config"));
  run.step = json_integer(values.at("step"), json_place(file, "step"), 0);
  return run;
}

Model load_run_model(const TrainedRun& run) {
  Model model = open_model(run.flags.model, run.model_config);
  NamedTensors weights = read_weights(run.checkpoint);
  // A run at opt level O3 has stored its weights in its training dtype.
  for (NamedTensor& each : weights) {
    if (each.tensor.is_floating_point()) each.tensor = each.tensor.to(at::kFloat);
  }
  prepare_assign(named_tensors(*model.module), weights, run.checkpoint.string())();
  return model;
}

std::shared_ptr<const Dataset> open_run_data(const TrainedRun& run) {
  const OpenedData data = open_training_data(run.flags, model_overrides(run.flags), run.known);
  check_data_fits(data.train->info(), run);
  return data.validation ? data.validation : data.train;
}

nlohmann::ordered_json describe_data(const DatasetInfo& info) {
  return {{"kind", info.kind},       {"input_shape", info.input_shape},
          {"classes", info.classes}, {"class_names", info.class_names},
          {"mean", info.mean},       {"deviation", info.deviation}};
}

void RunArguments::add_model_flags(CLI::App& app) {
  app.add_option("RUN_DIR", run_dir, "The run directory of a `rondo train`")
      ->check(existing_path())
      ->required();
  app.add_option("--checkpoint", checkpoint, "One of the run's checkpoints; default the newest")
      ->check(existing_path());
  app.add_option("--model", model, "File of your own model, FILE.so:FACTORY or FILE.pt, if it has moved");
}

void RunArguments::add_data_flags(CLI::App& app, const std::string& help_of_data) {
  app.add_option("--data", data, help_of_data)->check(existing_path());
  app.add_option("--data-kind", data_kind, "Kind of the data; default: as in training");
  add_device_flag(app, device);
}

void RunArguments::add_batch_size_flag(CLI::App& app, std::int64_t& batch_size) {
  app.add_option("--batch-size", batch_size, "Samples per rank and forward pass")
      ->check(positive_number())
      ->capture_default_str();
}

TrainedRun RunArguments::open(bool needs_data) const {
  OptionValues given;
  if (!model.empty()) given["model"] = model;
  if (!data_kind.empty()) given["data-kind"] = data_kind;
  if (!data.empty()) {
    given["data"] = data;
    given["validation-fraction"] = "0";
  }
  return open_run(run_dir, checkpoint, given, needs_data);
}

namespace {

int start_processes(int processes, const std::vector<std::string>& words) {
  setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
  launch::RunOptions options;
  options.processes = processes;
  options.command = {std::filesystem::read_symlink("/proc/self/exe").string()};
  options.command.insert(options.command.end(), words.begin(), words.end());
  return launch::run_job(options);
}

}  // namespace

void ProcessArguments::add_flags(CLI::App& app) {
  add_process_flag(app, processes);
  add_engine_flag(app, backend);
}

int use_run(const RunArguments& arguments, const ProcessArguments& processes,
            const std::vector<std::string>& words, const std::function<void(OpenedRun&)>& use) {
  if (processes.processes > 1 && !env::is_one_of_several(env::process_environment()))
    return start_processes(processes.processes, words);
  return record_failures([&] {
    load_simulated_device(arguments.device);
    OpenedRun opened;
    opened.context = init({.backend = processes.backend, .device = arguments.device});
    opened.device = opened.context.device();
    try {
      run_agreed(opened.context, [&] {
        opened.run = arguments.open(/*needs_data=*/true);
        opened.data = open_run_data(opened.run);
        opened.model = load_run_model(opened.run);
      });
      if (opened.context.rank() == 0) say_average(opened.run.is_average, opened.run.checkpoint);
      use(opened);
    } catch (const JobError&) {
      stand_by_report(opened.context);
      throw;
    }
    opened.context.shutdown();
    return 0;
  });
}

}  // namespace rondo
