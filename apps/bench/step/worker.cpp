// One rank of rondo in `rondo bench step`. It builds its model, says {"ready": true}, and then answers each
// line "run N" or "memory N" on standard input with one line of JSON about N training steps.
// bench/peers/step.py speaks the same protocol.
#include <ATen/Context.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>

#include "apps/bench/commands.h"
#include "apps/bench/step/schedule_flags.h"
#include "apps/bench/step/step_case.h"
#include "apps/bench/step/synthetic_batch.h"
#include "rondo/backend/accounting.h"
#include "rondo/backend/context.h"
#include "rondo/backend/native/registered_memory.h"
#include "rondo/base/time.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/kernels/matmul_choice.h"
#include "rondo/memory/ledger.h"
#include "rondo/models/loss.h"
#include "rondo/models/model.h"
#include "rondo/observe/memory.h"
#include "rondo/parallel/registry.h"
#include "rondo/precision/autocast.h"
#include "rondo/train/fused_adam.h"

namespace rondo::bench {
namespace {

struct WorkerOptions {
  StepCase training;
  std::string config;
  std::string strategy;
  std::string backend;
  std::string rendezvous;
  std::string bucket_bytes;  // empty: the default
  ScheduleFlags schedule;
  std::string plan;
  bool accounts_memory = false;
  int rank = 0;
  int world_size = 1;
  int joint_batch = 1;  // computes on the batches of so many ranks
};

StrategyOptions strategy_options(const WorkerOptions& options) {
  StrategyOptions result;
  result.codec = options.training.codec;
  if (options.strategy != "one_device")
    result.mixed_precision = parse_mixed_precision_policy(options.training.mixed_precision);
  if (!options.bucket_bytes.empty())
    result.bucket_bytes = parse_bytes(options.bucket_bytes, "--bucket-bytes");
  options.schedule.apply_to(result);
  result.plan = options.plan;
  return result;
}

// Private pages, and shared memory in full where it is this process's own: never a peer's.
Bytes own_memory() {
  const std::shared_ptr<SharedArena> arena = process_arena();
  const SharedArena::Usage usage = arena ? arena->usage() : SharedArena::Usage{};
  return private_memory() + Bytes{usage.used_bytes + usage.cached_bytes};
}

// Times in milliseconds since the first operation began.
nlohmann::json describe(const std::vector<CommunicationSpan>& spans) {
  nlohmann::json result = nlohmann::json::array();
  std::int64_t first = INT64_MAX;
  for (const CommunicationSpan& span : spans) first = std::min(first, span.begin_ns);
  const auto since = [&](std::int64_t ns) { return static_cast<double>(ns - first) * 1e-6; };
  for (const CommunicationSpan& span : spans) {
    result.push_back({{"operation", span.operation},
                      {"bytes", span.bytes.count},
                      {"begin_ms", since(span.begin_ns)},
                      {"end_ms", since(span.end_ns)}});
  }
  return result;
}

class Worker {
 public:
  explicit Worker(const WorkerOptions& options)
      : training_(options.training),
        context_(init(init_options(options))),
        model_(make_model(training_.model, training_.config)),
        communicates_(options.strategy != "one_device"),
        rank_(options.rank),
        joint_batch_(options.joint_batch) {
    load_weights(training_.weights, named_tensors(*model_.module));
    strategy_ = all_strategies().make(options.strategy, context_, strategy_options(options));
    prepared_ = strategy_->prepare(model_.module);
    const std::vector<at::Tensor> parameters = prepared_->module().parameters();
    if (training_.optimizer == "adamw") {
      optimizer_ =
          std::make_unique<FusedAdamW>(parameters, torch::optim::AdamWOptions(training_.learning_rate));
    } else {
      optimizer_ =
          std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(training_.learning_rate));
    }
  }

  nlohmann::json run(int steps) {
    nlohmann::json answer{{"losses", nlohmann::json::array()},
                          {"step_ms", nlohmann::json::array()},
                          {"comm_ms", nlohmann::json::array()},
                          {"exposed_comm_ms", nlohmann::json::array()}};
    for (int i = 0; i < steps; ++i) {
      const SyntheticBatch batch = next_batch();
      const TimePoint begin = Clock::now();
      const double loss = step(batch, [] {});
      answer["step_ms"].push_back(milliseconds(Clock::now() - begin));
      answer["losses"].push_back(loss);
      if (!communicates_) continue;
      const CommunicationTimes times = prepared_->communication_times();
      answer["comm_ms"].push_back(milliseconds(times.busy));
      answer["exposed_comm_ms"].push_back(milliseconds(times.exposed));
    }
    answer["communication"] = describe(prepared_->communication_spans());
    // What the last step left for the next one is done before others take their turn.
    prepared_->make_whole();
    answer["matmul"] = matmul_choice().fast ? "fast" : "default";
    return answer;
  }

  // Steps without a clock, in which memory is looked at where it may peak.
  nlohmann::json measure_memory(int steps) {
    process_ledger().reset_peak();
    for (int i = 0; i < steps; ++i) step(next_batch(), [this] { memory_.sample(); });
    return {{"peak_bytes", memory_.peak().count},
            {"peak_rss_bytes", peak_rss().count},
            // Without accounting the books hold only what was charged by hand.
            {"peak_tensor_bytes", accounts_cpu_allocations() ? process_ledger().peak_total() : 0}};
  }

 private:
  static InitOptions init_options(const WorkerOptions& options) {
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

  SyntheticBatch next_batch() {
    const auto make_batch = training_.is_gpt() ? token_batch : image_batch;
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> targets;
    for (int part = 0; part < joint_batch_; ++part) {
      const SyntheticBatch batch =
          make_batch(training_.config, training_.batch_size, step_, rank_ * joint_batch_ + part);
      inputs.push_back(batch.input);
      targets.push_back(batch.target);
    }
    ++step_;
    return {at::cat(inputs), at::cat(targets)};
  }

  // `phase_ended` is called after the forward pass, the backward pass and the optimizer's step.
  template <class PhaseEnded>
  double step(const SyntheticBatch& batch, const PhaseEnded& phase_ended) {
    optimizer_->zero_grad();
    prepared_->begin_step({.samples = batch.target.numel(), .gradients_are_read = training_.clip_norm > 0});
    at::Tensor loss;
    {
      std::optional<Autocast> autocast;
      if (training_.dtype == "bfloat16") autocast.emplace(at::kCPU, at::kBFloat16);
      const at::Tensor output = model_.forward(prepared_->cast_input(batch.input));
      loss = cross_entropy(prepared_->cast_output(output), batch.target).mean;
    }
    phase_ended();
    loss.backward();
    prepared_->finish_backward();
    phase_ended();
    if (training_.clip_norm > 0) prepared_->clip_gradients(training_.clip_norm);
    prepared_->step(*optimizer_);
    phase_ended();
    return loss.item<double>();
  }

  const StepCase training_;
  Context context_;
  Model model_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<PreparedModel> prepared_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  MemoryMeter memory_{own_memory};
  const bool communicates_;
  const int rank_;
  const int joint_batch_;
  std::int64_t step_ = 0;
};

int run_worker(WorkerOptions& options) {
  options.training.config = nlohmann::json::parse(options.config);
  if (options.accounts_memory) account_cpu_allocations();
  at::set_num_threads(1);
  // On both sides: units that have died leave Adam with averages that shrink into denormals, at three times
  // the step.
  at::globalContext().setFlushDenormal(true);
  Worker worker(options);
  std::cout << nlohmann::json{{"ready", true}}.dump() << std::endl;
  std::string command;
  int steps = 0;
  while (std::cin >> command >> steps) {
    const nlohmann::json answer = command == "memory" ? worker.measure_memory(steps) : worker.run(steps);
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}

}  // namespace

Command add_step_worker(CLI::App& app) {
  const auto options = std::make_shared<WorkerOptions>();
  CLI::App* command = app.add_subcommand("step-worker", "One process of 'rondo bench step'")->group("");
  command->add_option("--strategy", options->strategy)->required();
  command->add_option("--model", options->training.model)->required();
  command->add_option("--config", options->config)->required();
  command->add_option("--weights", options->training.weights)->required();
  command->add_option("--dtype", options->training.dtype)->required();
  command->add_option("--batch-size", options->training.batch_size)->required();
  command->add_option("--learning-rate", options->training.learning_rate)->required();
  command->add_option("--clip-norm", options->training.clip_norm);
  command->add_option("--optimizer", options->training.optimizer)->required();
  command->add_option("--codec", options->training.codec);
  command->add_option("--mixed-precision", options->training.mixed_precision);
  command->add_option("--backend", options->backend)->required();
  command->add_option("--rank", options->rank)->required();
  command->add_option("--world-size", options->world_size)->required();
  command->add_option("--rendezvous", options->rendezvous)->required();
  command->add_option("--bucket-bytes", options->bucket_bytes);
  command->add_option("--joint-batch", options->joint_batch);
  command->add_option("--plan", options->plan);
  command->add_flag("--account-memory", options->accounts_memory);
  options->schedule.add_to(*command);
  return {command, [options] { return run_worker(*options); }};
}

}  // namespace rondo::bench
