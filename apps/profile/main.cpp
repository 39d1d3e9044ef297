// `rondo profile`: measures a model and the link between ranks, for `rondo plan`.
#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>
#include <optional>

#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "apps/common/job_flags.h"
#include "apps/common/matmul_setup.h"
#include "apps/train/rank.h"
#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/error.h"
#include "rondo/base/job_error.h"
#include "rondo/base/progress_line.h"
#include "rondo/base/stage_progress.h"
#include "rondo/base/text.h"
#include "rondo/cost/profile_json.h"
#include "rondo/env/environment.h"
#include "rondo/env/identity.h"
#include "rondo/kernels/matmul_choice.h"
#include "rondo/launch/job.h"
#include "rondo/models/model_file.h"
#include "rondo/models/model_options.h"
#include "rondo/models/model_setup.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/model.h"
#include "rondo/nn/optimizers/optimizer.h"
#include "rondo/nn/wrap.h"
#include "rondo/profile/job_profile.h"
#include "rondo/train/agreement.h"

namespace {

struct Flags {
  std::string model = "gpt-25m";
  std::string config;
  std::optional<std::int64_t> seq_len;
  std::vector<std::string> unit_rules;
  std::int64_t batch_size = 4;
  std::string loss = "cross_entropy";
  std::string optimizer = "adamw";
  int passes = 8;
  int processes = 2;
  std::string backend = "auto";
  std::string largest = "64MiB";
  std::string matmul = "auto";
  std::string json;
};

int start_ranks(const Flags& flags, const std::vector<std::string>& arguments) {
  setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
  rondo::prepare_matmul(flags.matmul);
  rondo::launch::RunOptions options;
  options.processes = flags.processes;
  options.command = {std::filesystem::read_symlink("/proc/self/exe").string()};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  return rondo::launch::run_job(options);
}

// Returns a batch of random values. For an element-wise loss the target has the output's sizes.
rondo::Batch batch_for(const rondo::Model& model, const Flags& flags) {
  const rondo::ExampleBatch example = rondo::example_batch(model, flags.batch_size, flags.seq_len);
  rondo::Batch batch{.inputs = {example.input}, .targets = {example.target}, .samples = flags.batch_size};
  if (flags.loss == "cross_entropy" || flags.loss == "nll") return batch;
  const at::NoGradGuard no_gradients;
  const rondo::EvaluationMode evaluation(*model.module);
  batch.targets = {at::rand(model.forward(example.input).sizes())};
  return batch;
}

// Returns the model's settings by --model-config and --seq-len. Throws UsageError for a model without
// sequences.
nlohmann::json model_config(const Flags& flags) {
  nlohmann::json config = nlohmann::json::object();
  if (!flags.config.empty()) config = rondo::parse_json_flag(flags.config, "--model-config");
  if (!flags.seq_len) return config;
  const rondo::OptionValues options = {{"seq-len", std::to_string(*flags.seq_len)}};
  if (!rondo::model_file(flags.model)) {
    const std::vector<rondo::Declaration> models = rondo::declared_models();
    rondo::refuse_options_of_others(models, *rondo::find_declaration(models, flags.model), "model",
                                    flags.model, options);
  }
  config.update(rondo::model_setup(flags.model, options)->settings());
  return config;
}

void profile(const Flags& flags, const rondo::Context& context) {
  const auto make_model = [&] {
    torch::manual_seed(1);
    rondo::Model made = rondo::open_model(flags.model, model_config(flags));
    if (!flags.unit_rules.empty()) rondo::wrap_units(*made.module, flags.unit_rules);
    return made;
  };
  rondo::Model model;
  rondo::Batch batch;
  rondo::JobProfileOptions options;
  rondo::run_agreed(context, [&] {
    model = make_model();
    batch = batch_for(model, flags);
    options.model.loss = rondo::make_loss(flags.loss);
    options.link.largest = rondo::parse_bytes(flags.largest, "--largest");
  });
  const std::string made_for = rondo::describe_job(model, batch, flags.optimizer, flags.loss, context);
  options.model.optimizer = {.name = flags.optimizer, .learning_rate = 1e-4};
  options.model.passes = flags.passes;
  options.make_model = make_model;
  options.layers.passes = flags.passes;
  options.link.messages = true;
  rondo::StageProgress progress;
  if (context.rank() == 0) {
    options.on_stage = [&](const std::string& stage) {
      rondo::print_message("profile: measuring " + stage);
      progress.begin("measuring " + stage);
    };
  }
  const rondo::cost::Profile result = rondo::profile_job(context, std::move(model), batch, options, made_for);
  progress.end();
  rondo::run_agreed(context, [&] {
    if (context.rank() != 0) return;
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
                   "times are noisy: half of the passes lie within %.0f %% of their median; profile again on "
                   "an idle machine\n",
                   result.spread * 100);
    }
  });
}

int profile_as_a_rank(const Flags& flags) {
  rondo::track_cpu_allocations();
  rondo::Context context = rondo::init({.backend = flags.backend});
  try {
    profile(flags, context);
  } catch (const rondo::JobError&) {
    rondo::stand_by_report(context);
    throw;
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
  app.add_option("--model", flags.model, "Model to profile, or your own as FILE.so:FACTORY or FILE.pt")
      ->check(CLI::Validator(
          [](const std::string& name) {
            return rondo::model_file(name) ? std::string() : CLI::IsMember(rondo::model_names())(name);
          },
          "MODEL"))
      ->capture_default_str();
  app.add_option(
      "--model-config", flags.config,
      "JSON settings of the model; for your own also {\"input_shape\": [1, 28, 28], \"classes\": 10}");
  app.add_option("--seq-len", flags.seq_len,
                 "Sequence length, as in rondo train: bytes of text (gpt), tokens (bert, default 128)")
      ->check(rondo::positive_number());
  app.add_option("--unit-rules", flags.unit_rules,
                 "Layers that become units: all, type:Linear, name:blocks.*, parameters:10000")
      ->delimiter(',');
  app.add_option("--batch-size", flags.batch_size, "Samples per rank and pass")
      ->check(rondo::positive_number())
      ->capture_default_str();
  app.add_option("--loss", flags.loss, "Loss function, as in rondo train")
      ->check(CLI::IsMember(rondo::loss_names()))
      ->capture_default_str();
  app.add_option("--optimizer", flags.optimizer, "Optimizer")
      ->check(CLI::IsMember(rondo::optimizer_names()))
      ->capture_default_str();
  app.add_option(
         "--passes", flags.passes,
         "Passes per measurement, with and without activation checkpointing; noisy measurements are repeated")
      ->check(rondo::positive_number())
      ->capture_default_str();
  rondo::add_process_flag(app, flags.processes, /*least=*/2);
  rondo::add_engine_flag(app, flags.backend);
  app.add_option("--largest", flags.largest, "Largest buffer of the measured collectives")
      ->capture_default_str();
  app.add_option("--matmul", flags.matmul,
                 "Kernels of float32 matrix products; auto: the faster ones, measured once per machine")
      ->check(CLI::IsMember({"auto", "libtorch"}))
      ->capture_default_str();
  app.add_option("--json", flags.json, "Write the profile to this file")->required();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return rondo::run_command_line(app, argc, argv, [&] {
    if (rondo::env::is_one_of_several(rondo::env::process_environment())) {
      // A rank of another launcher has no other source of the setting.
      rondo::set_matmul(flags.matmul);
      return rondo::record_failures([&] { return profile_as_a_rank(flags); });
    }
    rondo::parse_bytes(flags.largest, "--largest");
    model_config(flags);
    if (flags.json == "-")
      throw rondo::UsageError("--json -: several processes write to standard output; name a file");
    return start_ranks(flags, arguments);
  });
}
