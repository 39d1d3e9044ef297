// `rondo profile`: measures a model and the link between ranks, for `rondo plan`.
#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>

#include "apps/common/command_line.h"
#include "apps/profile/link_profile.h"
#include "apps/profile/model_profile.h"
#include "rondo/backend/accounting.h"
#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/environment.h"
#include "rondo/env/identity.h"
#include "rondo/launch/job.h"
#include "rondo/models/model.h"
#include "rondo/train/optimizer.h"

namespace {

struct Flags {
  rondo::ModelProfileOptions model{.model = "gpt-25m"};
  std::string config;
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

int profile(Flags flags) {
  rondo::account_cpu_allocations();
  const rondo::Context context = rondo::init({.backend = flags.backend});
  if (!flags.config.empty()) {
    flags.model.config = nlohmann::json::parse(flags.config, nullptr, /*allow_exceptions=*/false);
    if (!flags.model.config.is_object())
      throw rondo::UsageError(rondo::str("--model-config ", flags.config, " is not a JSON object"));
  }
  torch::manual_seed(1);
  rondo::ModelProfiler profiler(flags.model);
  // All ranks compute at once, as they do in training.
  rondo::barrier(context.world());
  nlohmann::ordered_json result = {{"format", "rondo-profile-1"}};
  result.update(profiler.run());
  result["link"] = rondo::profile_link(context, {.largest = rondo::parse_bytes(flags.largest, "--largest")},
                                       [&] { profiler.pass(); });
  if (context.rank() == 0) {
    rondo::write_json(flags.json, result);
    double forward = 0;
    double backward = 0;
    for (const auto& unit : result["units"]) {
      forward += unit["forward_s"].get<double>();
      backward += unit["backward_s"].get<double>();
    }
    std::fprintf(stderr, "%s: %zu units, forward %.1f ms, backward %.1f ms, contention %.2f\n",
                 flags.model.model.c_str(), result["units"].size(), forward * 1e3, backward * 1e3,
                 result["link"]["contention"].get<double>());
  }
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
  app.add_option("--model", flags.model.model, "What to profile")
      ->check(CLI::IsMember(rondo::model_names()))
      ->capture_default_str();
  app.add_option("--model-config", flags.config, "JSON object that overrides the model's settings");
  app.add_option("--batch-size", flags.model.batch_size, "Samples per rank and pass")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--optimizer", flags.model.optimizer, "What moves the weights")
      ->check(CLI::IsMember(rondo::optimizer_names()))
      ->capture_default_str();
  app.add_option("--passes", flags.model.passes, "Passes that count, with and without checkpointing")
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
