#include "apps/train/rank.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <string_view>

#include "apps/train/job.h"
#include "apps/train/stop_signals.h"
#include "apps/train/train_command_line.h"
#include "apps/train/trained_run.h"
#include "apps/train/trainer_setup.h"
#include "apps/train/training_run.h"
#include "rondo/backend/card_engine.h"
#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/backend/registry.h"
#include "rondo/base/error.h"
#include "rondo/base/job_error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/log.h"
#include "rondo/base/process.h"
#include "rondo/base/progress.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/env/cluster.h"
#include "rondo/env/device_name.h"
#include "rondo/kernels/matmul_choice.h"
#include "rondo/launch/failure.h"
#include "rondo/models/generate.h"
#include "rondo/models/model.h"
#include "rondo/parallel/registry.h"
#include "rondo/train/evaluate_checkpoints.h"
#include "rondo/train/trainer.h"

namespace rondo {

int record_failures(const std::function<int()>& body) {
  try {
    return body();
  } catch (const JobError& error) {
    let_error_end_process();
    if (error.is_reporter()) launch::record_failure(error);
    throw;
  } catch (const std::exception& error) {
    let_error_end_process();
    launch::record_failure(error);
    throw;
  }
}

// A launcher sends TERM to the others as soon as one rank has failed.
void stand_by_report(const Context& context) {
  let_error_end_process();
  try {
    barrier(context.world());
  } catch (const std::exception&) {
    // A rank has exited nevertheless; there is an error to report already.
  }
}

void load_simulated_device(const std::string& device) {
  if (parse_device_name(device, "--device").kind != "sim") return;
  const std::string module = find_module("rondo_sim.so");
  if (module.empty()) {
    throw UsageError(str("--device ", device,
                         ": the simulated accelerator is a part of rondo's tests, and these programs were "
                         "installed or built without them; use --device cpu, cuda or auto, or a program of a "
                         "build folder with RONDO_BUILD_TESTS=ON"));
  }
  replace_card_engine(module);
}

namespace {

// Evaluates for the job in which TF_CONFIG makes this process the evaluator (env::is_evaluator); trains
// nothing. Repeatedly evaluates the newest checkpoint of --run-dir on the validation data, and writes its
// metrics to RUN/metrics.evaluator.jsonl. Ends when the training has ended (no process locks the run
// directory) or a signal requests it, with the last checkpoint evaluated. Throws UsageError without --run-dir
// or validation data, TimeoutError if there is no checkpoint and no training begins there within --timeout.
ExitCode run_evaluator(const TrainFlags& given) {
  log::set_prefix("evaluator");
  TrainFlags flags = given;
  if (flags.run_dir.empty()) throw UsageError("an evaluator needs --run-dir, the run that it evaluates");
  choose_model(flags, /*say=*/false);
  const nlohmann::json overrides = model_overrides(flags);
  const OpenedData data = open_training_data(flags, overrides);
  if (data.validation == nullptr) {
    throw UsageError(
        "an evaluator needs validation data: --validation-fraction is 0 and the data has no test part");
  }
  const Context context = init({.device = flags.device, .init_method = "alone"});
  const auto strategy = all_strategies().make(strategy_of_auto(/*several_processes=*/false), context);
  Trainer trainer(*strategy, make_training_model(flags, data.train->info(), overrides, /*rank=*/0),
                  context.device(), precision_options(flags));
  const DatasetInfo& info = data.train->info();
  trainer.compile(OptimizerOptions{.name = "sgd"}, chosen_loss(flags, info),
                  chosen_metrics(flags, info, metrics_for(flags, info)));
  request_stop_on_signals();

  ProgressOptions shown;
  shown.style = parse_progress_style(flags.progress);
  std::optional<Progress> progress(std::in_place, stderr, shown);
  evaluate_checkpoints(trainer, *data.validation,
                       {.run = flags.run_dir,
                        .evaluate = {.batch_size = flags.eval_batch_size,
                                     .batches = flags.eval_batches,
                                     .progress =
                                         [&](std::int64_t batches, std::int64_t of) {
                                           progress->activity("validation", batches, of, "batches");
                                         }},
                        .patience = parse_duration(flags.timeout, "--timeout"),
                        .stop_requested = stop_requested,
                        .told = [&](std::int64_t step, const std::map<std::string, double>& figures) {
                          progress.emplace(stderr, shown);  // ends the progress line of this evaluation
                          std::string text;
                          for (const auto& [metric, value] : figures) text += str(", ", metric, " ", value);
                          std::printf("evaluated step %lld%s\n", static_cast<long long>(step), text.c_str());
                          std::fflush(stdout);
                        }});
  return ExitCode::ok;
}

// Length of the UTF-8 sequence that `text` begins with, or 0 when it begins with none.
std::size_t sequence_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

// Replaces invalid UTF-8 by the replacement character: a model of bytes may write anything, and terminals
// must survive it.
std::string with_replacements(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const bool control = length == 1 &&
                         (static_cast<unsigned char>(text.front()) < 0x20 || text.front() == 0x7F) &&
                         text.front() != '\n' && text.front() != '\t';
    if (length == 0 || control) {
      result += "\xEF\xBF\xBD";
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

// Prints --sample's text and its continuation by the GPT in the newest checkpoint of --run-dir. Throws
// UsageError when the checkpoint holds another kind of model.
void print_sample(const TrainFlags& flags) {
  const LearntWeights learnt = learnt_weights(flags.run_dir);
  const std::filesystem::path& checkpoint = learnt.checkpoint;  // readers of the checkpoint verify it
  const std::string file = (checkpoint / "state.json").string(), of_model = json_place(file, "model");
  const nlohmann::json values = read_checkpoint_values(checkpoint);
  const nlohmann::json& description = json_member(values, "model", file);
  say_average(learnt.is_average, checkpoint);
  Model model =
      make_model(json_text(json_member(description, "name", of_model), json_place(of_model, "name")),
                 json_member(description, "config", of_model));
  // A run at opt level O3 has stored its weights in its training dtype.
  const NamedTensors weights = read_weights(checkpoint);
  model.module->to(weights.front().tensor.scalar_type());
  prepare_assign(named_tensors(*model.module), weights, checkpoint.string())();
  model.module->to(at::kFloat);
  Gpt gpt = gpt_of(model);

  GenerateOptions options;
  options.tokens = flags.length;
  options.temperature = flags.temperature;
  options.top_k = flags.top_k;
  options.seed = flags.seed;
  std::cout << *flags.sample << with_replacements(generate_text(gpt, *flags.sample, options)) << std::endl;
}

int train_or_sample(const TrainFlags& flags, const StrategyRegistry& strategies) {
  if (flags.sample) {
    print_sample(flags);
    return 0;
  }
  const bool evaluates = env::is_evaluator(env::process_environment());
  return static_cast<int>(evaluates ? run_evaluator(flags) : run_training(flags, strategies));
}

}  // namespace

int run_rank(int argc, const char* const* argv, const StrategyRegistry& strategies) {
  end_on_stop_signals();
  TrainChoices choices = built_in_choices();
  choices.strategies = strategies.declarations();
  choices.engines = backend_declarations();
  return TrainCommandLine(std::move(choices)).run(argc, argv, [&](const TrainFlags& flags) {
    // A rank of another launcher has no other source of the setting.
    set_matmul(flags.matmul);
    return record_failures([&] {
      load_simulated_device(flags.device);
      return train_or_sample(flags, strategies);
    });
  });
}

}  // namespace rondo
