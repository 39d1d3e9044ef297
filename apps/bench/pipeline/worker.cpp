// One rank of rondo in `rondo bench pipeline`: answers "run N" with N steps, as the workers of `rondo bench
// step` do, and says what it computed when. bench/peers/pipeline.py is PyTorch's side.
#include <ATen/Context.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "apps/bench/commands.h"
#include "apps/bench/pipeline/emulated_stages.h"
#include "apps/bench/step/synthetic_batch.h"
#include "apps/bench/step/worker_flags.h"
#include "rondo/backend/context.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/time.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/kernels/matmul_choice.h"
#include "rondo/models/model.h"
#include "rondo/observe/memory_observer.h"
#include "rondo/parallel/pipeline/pipeline_training.h"
#include "rondo/parallel/registry.h"
#include "rondo/strategy/training.h"
#include "rondo/train/optimizer.h"

namespace rondo::bench {
namespace {

struct PipelineWorkerOptions : WorkerOptions {
  std::string schedule;  // of strategy pipeline
  int micro_batches = 1;
};

nlohmann::json describe_slots(const std::vector<pipeline::Slot>& slots) {
  nlohmann::json result = nlohmann::json::array();
  for (const pipeline::Slot& slot : slots) {
    result.push_back({static_cast<int>(slot.action.kind), slot.action.stage, slot.action.micro_batch,
                      slot.begin_s, slot.end_s});
  }
  return result;
}

class PipelineWorker {
 public:
  explicit PipelineWorker(const PipelineWorkerOptions& options)
      : training_(options.training),
        context_(init(
            {.init_method = options.rendezvous, .rank = options.rank, .world_size = options.world_size})) {
    OptionValues values;
    if (!options.schedule.empty()) {
      values = {{"pipeline-schedule", options.schedule},
                {"micro-batches", std::to_string(options.micro_batches)}};
    }
    strategy_ = all_strategies().make(options.strategy, context_, values);
    trained_ = strategy_->prepare({.model = [this] { return make(); },
                                   .optimizer =
                                       [this](torch::nn::Module& module) {
                                         return make_optimizer(
                                             {.name = training_.optimizer,
                                              .learning_rate = training_.learning_rate,
                                              .weight_decay = training_.optimizer == "adamw" ? 0.01 : 0.0},
                                             module);
                                       }});
  }

  nlohmann::json run(int steps) {
    nlohmann::json answer{{"losses", nlohmann::json::array()},
                          {"step_ms", nlohmann::json::array()},
                          {"slots", nlohmann::json::array()}};
    const auto* const pipeline = dynamic_cast<const PipelineTraining*>(trained_.get());
    for (int i = 0; i < steps; ++i) {
      const Batch batch = next_batch();
      const TimePoint begin = Clock::now();
      const StepTotals totals =
          trained_->train_step({&batch, 1}, {.step = step_, .clip_norm = training_.clip_norm}).totals;
      answer["step_ms"].push_back(milliseconds(Clock::now() - begin));
      answer["losses"].push_back(totals.loss / static_cast<double>(totals.predictions));
      if (pipeline != nullptr) answer["slots"].push_back(describe_slots(pipeline->computed()));
    }
    trained_->prepared().unshard();  // nothing is left for the turns of others
    answer["peak_rss_bytes"] = peak_rss().count;
    answer["matmul"] = matmul_choice().fast ? "fast" : "default";
    return answer;
  }

 private:
  bool is_emulated() const { return training_.config.contains("unit_ms"); }

  Model make() {
    if (is_emulated()) {
      const auto time = std::chrono::duration_cast<Duration>(
          std::chrono::duration<double, std::milli>(training_.config.at("unit_ms").get<double>()));
      return make_emulated_stages(training_.config.at("units").get<int>(), {time, time, time});
    }
    Model model = make_model(training_.model, training_.config);
    load_weights(training_.weights, named_tensors(*model.module));
    return model;
  }

  // The samples of this rank's replica: all replicas together have the same as one.
  Batch next_batch() {
    const InputShard shard = strategy_->input_shard();
    const std::int64_t samples = training_.batch_size / shard.count;
    if (is_emulated()) return emulated_batch(samples);
    const SyntheticBatch all = token_batch(training_.config, training_.batch_size, step_++, 0);
    Batch batch{.inputs = {all.input.narrow(0, shard.index * samples, samples)},
                .targets = {all.target.narrow(0, shard.index * samples, samples)}};
    batch.samples = samples;
    return batch;
  }

  const StepCase training_;
  Context context_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<Training> trained_;
  std::int64_t step_ = 0;
};

int run_pipeline_worker(PipelineWorkerOptions& options) {
  options.training.config = parse_json_strict(options.config, "--config");
  at::set_num_threads(1);
  at::Context::setFlushDenormal(true);
  PipelineWorker worker(options);
  answer_lines([&](const std::string&, int steps) { return worker.run(steps); });
  return 0;
}

}  // namespace

Command add_pipeline_worker(CLI::App& app) {
  const auto options = std::make_shared<PipelineWorkerOptions>();
  CLI::App* command =
      app.add_subcommand("pipeline-worker", "One process of 'rondo bench pipeline'")->group("");
  add_worker_flags(*command, *options);
  command->add_option("--schedule", options->schedule);
  command->add_option("--micro-batches", options->micro_batches);
  return {command, [options] { return run_pipeline_worker(*options); }};
}

}  // namespace rondo::bench
