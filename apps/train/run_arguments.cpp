#include "apps/train/run_arguments.h"

#include "apps/common/flag_checks.h"
#include "rondo/base/error.h"
#include "rondo/env/device_name.h"

namespace rondo {
namespace {

// A device's name (env/device_name.h).
CLI::Validator device_name() {
  return CLI::Validator(
      [](const std::string& text) {
        try {
          parse_device_name(text, "device");
          return std::string();
        } catch (const UsageError& error) {
          return std::string(error.what());
        }
      },
      "");
}

}  // namespace

void RunArguments::add_model_flags(CLI::App& app) {
  app.add_option("RUN_DIR", run_dir, "The run directory of a `rondo train`")
      ->check(existing_path())
      ->required();
  app.add_option("--checkpoint", checkpoint, "One of the run's checkpoints; default the newest")
      ->check(existing_path());
  app.add_option("--model", model,
                 "Of a model of your own: FILE.so:FACTORY or FILE.pt, where it is not where the run says");
}

void RunArguments::add_data_flags(CLI::App& app, const std::string& help_of_data) {
  app.add_option("--data", data, help_of_data)->check(existing_path());
  app.add_option("--data-kind", data_kind, "What the data is; default what the run was trained on");
  app.add_option("--device", device, "Where tensors live: auto (cuda if there is one), cpu, cuda or cuda:N")
      ->check(device_name())
      ->capture_default_str();
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

}  // namespace rondo
