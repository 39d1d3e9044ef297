// One rank of rondo in `rondo bench step`. It builds its model, writes {"ready": true}, and then answers each
// line "run N" or "memory N" on standard input with one line of JSON about N training steps.
// bench/peers/step.py has the same protocol.
#include <torch/types.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <algorithm>

#include "apps/bench/commands.h"
#include "apps/bench/harness/rank.h"
#include "apps/bench/step/schedule_flags.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/text.h"
#include "rondo/kernels/matmul_choice.h"
#include "rondo/memory/tracker.h"
#include "rondo/observe/memory_observer.h"
#include "rondo/parallel/registry.h"

namespace rondo::bench {
namespace {

struct StepWorkerOptions : WorkerOptions {
  std::string backend;
  std::string bucket_bytes;  // empty: the default
  ScheduleFlags schedule;
  std::string plan;
  bool tracks_memory = false;
  int joint_batch = 1;  // number of ranks whose batches this process computes
  int replicas = 1;     // for a strategy with several replicas per process
};

// Returns the benchmark's options that this strategy has.
OptionValues strategy_values(const StepWorkerOptions& options, const OptionTable& table) {
  OptionValues values = options.schedule.values();
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) values[option] = value;
  };
  add("codec", options.training.codec);
  add("bucket-size", options.bucket_bytes);
  add("plan", options.plan);
  add("replicas", options.replicas > 1 ? str(options.replicas) : "");
  std::erase_if(values, [&](const auto& each) { return table.find(each.first) == nullptr; });
  // A strategy without mixed precision rejects the option: its results would be those of float32.
  if (options.strategy != "one_device") add("mixed-precision", options.training.mixed_precision);
  return values;
}

// Returns private pages plus this process's own shared memory in full, without the peers'.
Bytes own_memory() {
  const std::shared_ptr<SharedArena> arena = process_arena();
  const SharedArena::Usage usage = arena ? arena->usage() : SharedArena::Usage{};
  return private_memory() + Bytes{usage.used_bytes + usage.cached_bytes};
}

// Describes spans in milliseconds since the start of the first operation.
nlohmann::json describe(const std::vector<TraceSpan>& spans) {
  nlohmann::json result = nlohmann::json::array();
  std::int64_t first = INT64_MAX;
  for (const TraceSpan& span : spans) first = std::min(first, span.begin_ns);
  const auto since = [&](std::int64_t ns) { return static_cast<double>(ns - first) * 1e-6; };
  for (const TraceSpan& span : spans) {
    result.push_back({{"operation", span.name},
                      {"bytes", span.bytes.value_or(0)},
                      {"begin_ms", since(span.begin_ns)},
                      {"end_ms", since(span.end_ns)}});
  }
  return result;
}

class Worker {
 public:
  explicit Worker(const StepWorkerOptions& options)
      : training_(options.training),
        context_(init(init_options(options))),
        model_(initial_model(training_)),
        communicates_(options.strategy != "one_device"),
        joint_batch_(options.joint_batch),
        first_batch_(options.rank * options.joint_batch) {
    const StrategyRegistry strategies = all_strategies();
    const OptionTable& table = strategies.declaration(options.strategy).options;
    strategy_ = strategies.make(options.strategy, context_, strategy_values(options, table));
    Recipe recipe{.model = [this, first = true]() mutable {
      return std::exchange(first, false) ? model_ : make_model(training_.model, training_.config);
    }};
    recipe.optimizer = [this](torch::nn::Module& module) { return optimizer_of(training_, module); };
    if (training_.dtype == "bfloat16") recipe.precision.level = OptLevel::O1;
    trained_ = strategy_->prepare(recipe);
    // Ranks that divide a replica compute all their batches together.
    const InputShard shard = strategy_->input_shard();
    const int ranks_of_replica = context_.world_size() / shard.count;
    if (ranks_of_replica > 1) {
      joint_batch_ *= ranks_of_replica;
      first_batch_ = shard.index * joint_batch_;
    }
  }

  nlohmann::json run(int steps) {
    nlohmann::json answer{{"losses", nlohmann::json::array()},
                          {"step_ms", nlohmann::json::array()},
                          {"comm_ms", nlohmann::json::array()},
                          {"exposed_comm_ms", nlohmann::json::array()}};
    // Created before the steps: a rank with a slower batch would delay the others.
    std::vector<Batch> batches;
    for (int i = 0; i < steps; ++i) batches.push_back(next_batch());
    for (const Batch& batch : batches) {
      const TimePoint begin = Clock::now();
      const double loss = step(batch, {});
      answer["step_ms"].push_back(milliseconds(Clock::now() - begin));
      answer["losses"].push_back(loss);
      if (!communicates_) continue;
      const CommunicationTimes times = trained_->prepared().communication_times();
      answer["comm_ms"].push_back(milliseconds(times.busy));
      answer["exposed_comm_ms"].push_back(milliseconds(times.exposed));
    }
    answer["communication"] = describe(trained_->prepared().communication_spans());
    // Completes deferred work before other contestants take their turn.
    trained_->prepared().unshard();
    answer["matmul"] = matmul_choice().fast ? "fast" : "libtorch";
    return answer;
  }

  // Runs untimed steps, in which memory is sampled at possible peaks.
  nlohmann::json measure_memory(int steps) {
    replica_memory_tracker().reset_peak();
    for (int i = 0; i < steps; ++i) step(next_batch(), [this] { memory_.sample(); });
    return {{"peak_bytes", memory_.peak().count},
            {"peak_rss_bytes", peak_rss().count},
            // Without tracking the tracker has only explicitly charged memory.
            {"peak_tensor_bytes", tracks_cpu_allocations() ? replica_memory_tracker().peak_total() : 0}};
  }

 private:
  static InitOptions init_options(const StepWorkerOptions& options) {
    InitOptions result;
    result.backend = options.backend;
    if (options.strategy == "one_device") {
      result.rank = 0;
      result.world_size = 1;
      result.store = c10::make_intrusive<c10d::HashStore>();
    } else {
      result.rank = options.rank;
      result.world_size = options.world_size;
      result.init_method = options.rendezvous;
    }
    return result;
  }

  Batch next_batch() {
    std::vector<at::Tensor> inputs, targets;
    for (int part = 0; part < joint_batch_; ++part) {
      const Batch batch = synthetic_batch(training_, step_, first_batch_ + part);
      inputs.push_back(batch.input());
      targets.push_back(batch.target());
    }
    ++step_;
    Batch batch{.inputs = {at::cat(inputs)}, .targets = {at::cat(targets)}};
    batch.samples = batch.inputs.front().size(0);
    return batch;
  }

  // Returns the mean loss over all ranks. Calls `phase_ended` after the forward pass, the backward pass and
  // the optimizer's step.
  double step(const Batch& batch, const std::function<void()>& phase_ended) {
    StepSettings settings{.step = ++steps_done_, .clip_norm = training_.clip_norm};
    if (phase_ended) {
      settings.on_phase = [&](StepPhase phase) {
        if (phase != StepPhase::forward && phase != StepPhase::waiting) phase_ended();
      };
    }
    const StepTotals totals = trained_->train_step({&batch, 1}, settings).totals;
    return totals.loss / static_cast<double>(totals.predictions);
  }

  const StepCase training_;
  Context context_;
  Model model_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<Training> trained_;
  MemoryMeter memory_{own_memory};
  const bool communicates_;
  int joint_batch_;
  int first_batch_;        // in a rank's stream of batches
  std::int64_t step_ = 0;  // step of the last created batch
  std::int64_t steps_done_ = 0;
};

int run_worker(StepWorkerOptions& options) {
  if (options.tracks_memory) track_cpu_allocations();
  begin_worker(options, options.replicas);  // one thread per replica
  Worker worker(options);
  answer_lines([&](const std::string& command, int steps) {
    return command == "memory" ? worker.measure_memory(steps) : worker.run(steps);
  });
  return 0;
}

}  // namespace

Command add_step_worker(CLI::App& app) {
  const auto options = std::make_shared<StepWorkerOptions>();
  CLI::App* command = app.add_subcommand("step-worker", "One process of 'rondo bench step'")->group("");
  add_worker_flags(*command, *options);
  command->add_option("--mixed-precision", options->training.mixed_precision);
  command->add_option("--backend", options->backend)->required();
  command->add_option("--bucket-size", options->bucket_bytes);
  command->add_option("--joint-batch", options->joint_batch);
  command->add_option("--replicas", options->replicas);
  command->add_option("--plan", options->plan);
  command->add_flag("--track-memory", options->tracks_memory);
  options->schedule.add_to(*command);
  return {command, [options] { return run_worker(*options); }};
}

}  // namespace rondo::bench
