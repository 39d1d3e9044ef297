// One rank of rondo in `rondo bench-dev pipeline`. It answers "run N" with N steps, as the workers of `rondo
// bench step` do, and reports its computations with times. bench/peers/pipeline.py is PyTorch's counterpart.
#include <torch/nn.h>
#include <torch/types.h>

#include "apps/bench/commands.h"
#include "apps/bench/dev/emulated_accelerator.h"
#include "apps/bench/harness/rank.h"
#include "rondo/base/text.h"
#include "rondo/kernels/matmul_choice.h"
#include "rondo/observe/memory_observer.h"
#include "rondo/parallel/pipeline/pipeline_strategy.h"
#include "rondo/parallel/registry.h"

namespace rondo::bench {
namespace {

constexpr std::int64_t kEmulatedWidth = 64;

struct PipelineWorkerOptions : WorkerOptions {
  std::string schedule;  // option of strategy pipeline
  int micro_batches = 1;
};

struct EmulatedLayerImpl : torch::nn::Module {
  explicit EmulatedLayerImpl(const EmulatedTimes& its) : times(its) {
    weight = register_parameter("weight", torch::zeros({kEmulatedWidth}));
  }
  at::Tensor forward(const at::Tensor& values) { return emulated_unit(values, weight, times); }
  EmulatedTimes times;
  at::Tensor weight;
};
TORCH_MODULE(EmulatedLayer);

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
    if (!options.schedule.empty())
      values = {{"pipeline-schedule", options.schedule}, {"micro-batches", str(options.micro_batches)}};
    strategy_ = all_strategies().make(options.strategy, context_, values);
    trained_ = strategy_->prepare(
        {.model = [this] { return make(); },
         .optimizer = [this](torch::nn::Module& module) { return optimizer_of(training_, module); }});
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
    trained_->prepared().unshard();  // no work is left for other contestants' turns
    answer["peak_rss_bytes"] = peak_rss().count;
    answer["matmul"] = matmul_choice().fast ? "fast" : "libtorch";
    return answer;
  }

 private:
  bool is_emulated() const { return training_.config.contains("unit_ms"); }

  Model make() {
    if (!is_emulated()) return initial_model(training_);
    torch::nn::Sequential layers;
    for (int unit = 0; unit < training_.config.at("units").get<int>(); ++unit)
      layers->push_back(str("unit", unit),
                        EmulatedLayer(equal_times(training_.config.at("unit_ms").get<double>())));
    return emulated_model(layers);
  }

  // Returns this rank's samples: replicas together have as many as a single one. Emulated samples require
  // gradients, so that the first unit's backward pass takes as long as the others'.
  Batch next_batch() {
    const InputShard shard = strategy_->input_shard();
    const std::int64_t samples = training_.batch_size / shard.count;
    if (is_emulated()) {
      return {.inputs = {torch::ones({samples, kEmulatedWidth}).requires_grad_()},
              .targets = {torch::zeros({samples}, torch::kLong)},
              .samples = samples};
    }
    const Batch all = synthetic_batch(training_, step_++, 0);
    return {.inputs = {all.input().narrow(0, shard.index * samples, samples)},
            .targets = {all.target().narrow(0, shard.index * samples, samples)},
            .samples = samples};
  }

  const StepCase training_;
  Context context_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<Training> trained_;
  std::int64_t step_ = 0;
};

int run_pipeline_worker(PipelineWorkerOptions& options) {
  begin_worker(options);
  PipelineWorker worker(options);
  answer_lines([&](const std::string&, int steps) { return worker.run(steps); });
  return 0;
}

}  // namespace

Command add_pipeline_worker(CLI::App& app) {
  const auto options = std::make_shared<PipelineWorkerOptions>();
  CLI::App* command =
      app.add_subcommand("pipeline-worker", "One process of 'rondo bench-dev pipeline'")->group("");
  add_worker_flags(*command, *options);
  command->add_option("--pipeline-schedule", options->schedule);
  command->add_option("--micro-batches", options->micro_batches);
  return {command, [options] { return run_pipeline_worker(*options); }};
}

}  // namespace rondo::bench
