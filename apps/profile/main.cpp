// `rondo profile`: measures a model and the link between ranks, for `rondo plan`.
#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>

#include "apps/common/command_line.h"
#include "rondo/backend/accounting.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/cost/profile_json.h"
#include "rondo/data/dataset.h"
#include "rondo/env/environment.h"
#include "rondo/env/identity.h"
#include "rondo/launch/job.h"
#include "rondo/models/model.h"
#include "rondo/profile/job_profile.h"
#include "rondo/train/optimizer.h"

namespace {

struct Flags {
  std::string model = "gpt-25m";
  std::string config;
  std::int64_t batch_size = 4;
  std::string optimizer = "adamw";
  int passes = 8;
  int processes = 2;
  std::string backend = "auto";
  std::string largest = "64MiB";
  std::string json;
};

bool is_a_rank() {
  const auto environment = rondo::env::process_environment();
  return rondo::env::started_by_launcher(environment) || rondo::env::discover(environment).world_size > 1;
}

int start_ranks(const Flags& flags, const std::vector<std::string>& arguments) {
  setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
  rondo::launch::RunOptions options;
  options.processes = flags.processes;
  options.command = {std::filesystem::read_symlink("/proc/self/exe").string()};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  return rondo::launch::run_job(options);
}

// Tokens for a model with a context, else float32 samples and their classes.
rondo::Batch made_up_batch(const nlohmann::json& config, std::int64_t samples) {
  if (config.contains("context")) {
    const auto context = config.at("context").get<std::int64_t>();
    const auto vocabulary = config.at("vocabulary").get<std::int64_t>();
    return {at::randint(vocabulary, {samples, context}, at::kLong),
            at::randint(vocabulary, {samples, context}, at::kLong), samples};
  }
  if (!config.contains("input_shape") || !config.contains("classes"))
    throw rondo::UsageError(
        "rondo profile cannot make up data for this model: it has neither context nor input_shape");
  auto shape = config.at("input_shape").get<std::vector<std::int64_t>>();
  shape.insert(shape.begin(), samples);
  return {at::rand(shape), at::randint(config.at("classes").get<std::int64_t>(), {samples}, at::kLong),
          samples};
}

int profile(const Flags& flags) {
  rondo::account_cpu_allocations();
  rondo::Context context = rondo::init({.backend = flags.backend});
  nlohmann::json config = nlohmann::json::object();
  if (!flags.config.empty()) {
    config = nlohmann::json::parse(flags.config, nullptr, /*allow_exceptions=*/false);
    if (!config.is_object())
      throw rondo::UsageError(rondo::str("--model-config ", flags.config, " is not a JSON object"));
  }
  torch::manual_seed(1);
  rondo::Model model = rondo::make_model(flags.model, config);
  const rondo::Batch batch = made_up_batch(model.config, flags.batch_size);
  const std::string made_for = rondo::describe_job(model, flags.batch_size, flags.optimizer, context);
  rondo::JobProfileOptions options;
  options.model.optimizer = {.name = flags.optimizer, .learning_rate = 1e-4};
  options.model.passes = flags.passes;
  options.link.largest = rondo::parse_bytes(flags.largest, "--largest");
  const rondo::cost::Profile result =
      rondo::profile_job(context, std::move(model), batch.input, batch.target, options, made_for);
  if (context.rank() == 0) {
    rondo::write_json(flags.json, rondo::cost::to_json(result));
    double forward = 0;
    double backward = 0;
    for (const rondo::cost::UnitProfile& unit : result.units) {
      forward += unit.forward_s;
      backward += unit.backward_s;
    }
    std::fprintf(stderr, "%s: %zu units, forward %.1f ms, backward %.1f ms, contention %.2f\n",
                 flags.model.c_str(), result.units.size(), forward * 1e3, backward * 1e3,
                 result.link.contention);
    if (result.spread > rondo::cost::kSteadySpread) {
      std::fprintf(stderr,
                   "half of the passes lie within %.0f %% of their median: the machine was not steady\n",
                   result.spread * 100);
    }
  }
  context.shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Measures a model, unit by unit, and the link between ranks on this machine, for `rondo plan "
      "--profile`.",
      "rondo profile");
  app.footer(
      "Examples:\n"
      "  rondo profile --model gpt-25m --batch-size 4 --nproc-per-node 2 --json profile.json\n"
      "  rondo run -n 4 rondo profile --model gpt --model-config '{\"layers\": 12}' --json profile.json");
  app.add_option("--model", flags.model, "What to profile")
      ->check(CLI::IsMember(rondo::model_names()))
      ->capture_default_str();
  app.add_option("--model-config", flags.config, "JSON object that overrides the model's settings");
  app.add_option("--batch-size", flags.batch_size, "Samples per rank and pass")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--optimizer", flags.optimizer, "What moves the weights")
      ->check(CLI::IsMember(rondo::optimizer_names()))
      ->capture_default_str();
  app.add_option(
         "--passes", flags.passes,
         "Passes of one measurement, with and without checkpointing; up to three where times are not steady")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--nproc-per-node", flags.processes, "Start this many processes on this host")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  app.add_option("--backend", flags.backend, "Communication engine")->capture_default_str();
  app.add_option("--largest", flags.largest, "Largest buffer of a collective that is measured")
      ->capture_default_str();
  app.add_option("--json", flags.json, "Write the profile to this file")->required();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return rondo::run_command_line(app, argc, argv, [&] {
    rondo::parse_bytes(flags.largest, "--largest");
    if (is_a_rank()) return profile(flags);
    if (flags.json == "-") throw rondo::UsageError("--json -: several processes write here; name a file");
    return start_ranks(flags, arguments);
  });
}
