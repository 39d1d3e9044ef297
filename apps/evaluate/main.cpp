// `rondo evaluate`: loss and metrics of a trained model.
#include <torch/types.h>

#include <cstdio>

#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "apps/train/job.h"
#include "apps/train/trained_run.h"
#include "apps/train/trainer_setup.h"
#include "rondo/base/error.h"
#include "rondo/base/progress.h"
#include "rondo/parallel/registry.h"
#include "rondo/train/agreement.h"
#include "rondo/train/trainer.h"

namespace {

struct EvaluateFlags {
  rondo::RunArguments run;
  std::int64_t batch_size = 32;
  std::int64_t batches = 0;
  rondo::ProcessArguments processes;
  std::string json;
};

void evaluate(const EvaluateFlags& flags, rondo::OpenedRun& opened) {
  const rondo::Context& context = opened.context;
  const rondo::TrainedRun& run = opened.run;
  const auto& data = opened.data;
  const rondo::DatasetInfo& info = data->info();
  const auto strategy =
      rondo::all_strategies().make(context.world_size() > 1 ? "ddp" : "one_device", context);
  rondo::Trainer trainer(*strategy, std::move(opened.model), opened.device,
                         rondo::precision_options(run.flags));
  rondo::LossFunction loss = rondo::cross_entropy;
  std::vector<rondo::Metric> metrics;
  rondo::run_agreed(context, [&] {
    loss = rondo::chosen_loss(run.flags, info);
    metrics = rondo::chosen_metrics(run.flags, info, rondo::metrics_for(run.flags, info));
  });
  trainer.compile([](torch::nn::Module& module) { return rondo::make_optimizer({.name = "sgd"}, module); },
                  std::move(loss), std::move(metrics));
  rondo::ProgressOptions progress_options;
  if (context.rank() > 0) progress_options.style = rondo::ProgressStyle::off;
  rondo::Progress progress(stderr, progress_options);
  const std::map<std::string, double> figures =
      trainer.evaluate(*data, {.batch_size = flags.batch_size,
                               .batches = flags.batches,
                               .progress = [&](std::int64_t batches, std::int64_t of) {
                                 progress.activity("evaluation", batches, of, "batches");
                               }});
  progress.finish();
  rondo::run_agreed(context, [&] {
    if (context.rank() != 0) return;
    if (flags.json != "-") {
      for (const auto& [name, value] : figures) std::printf("%s %g\n", name.c_str(), value);
      std::printf("of %lld samples of %s, step %lld\n", static_cast<long long>(data->size()),
                  rondo::shown(data->info().source).c_str(), static_cast<long long>(run.step));
    }
    rondo::write_json(flags.json, {{"run_dir", flags.run.run_dir},
                                   {"checkpoint", run.checkpoint.string()},
                                   {"step", run.step},
                                   {"data", data->info().source},
                                   {"samples", data->size()},
                                   {"ranks", context.world_size()},
                                   {"figures", figures}});
  });
}

}  // namespace

int main(int argc, char** argv) {
  EvaluateFlags flags;
  CLI::App app(
      "Computes loss and metrics of a trained model, exactly over all samples for any number of processes.",
      "rondo evaluate");
  app.footer(
      "Examples:\n"
      "  rondo evaluate runs/digits                          # on the run's own validation data\n"
      "  rondo evaluate runs/digits --data test.csv --json -\n"
      "  rondo evaluate runs/gpt --data books/ --nproc-per-node 2 --json figures.json");
  flags.run.add_model_flags(app);
  flags.run.add_data_flags(app, "File or directory to evaluate on; default: the run's validation data");
  rondo::RunArguments::add_batch_size_flag(app, flags.batch_size);
  app.add_option("--eval-batches", flags.batches, "Number of batches to evaluate, over all ranks; 0: all")
      ->check(rondo::not_negative_number())
      ->capture_default_str();
  flags.processes.add_flags(app);
  app.add_option("--json", flags.json, "Write the metrics as JSON to FILE, or '-' for standard output");
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return rondo::run_command_line(app, argc, argv, [&] {
    if (flags.processes.processes > 1 && flags.json == "-")
      throw rondo::UsageError("--json -: several processes write to standard output; name a file");
    return rondo::use_run(flags.run, flags.processes, arguments,
                          [&](rondo::OpenedRun& opened) { evaluate(flags, opened); });
  });
}
