// One rank of rondo in `rondo bench step`. It builds its model, says {"ready": true}, and then answers each
// line "run N" on standard input with one line of JSON about N training steps. bench/peers/step.py speaks the
// same protocol.
#include <ATen/Context.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <iostream>
#include <memory>
#include <optional>

#include "apps/bench/commands.h"
#include "apps/bench/step/step_case.h"
#include "apps/bench/step/synthetic_batch.h"
#include "rondo/backend/context.h"
#include "rondo/base/time.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/kernels/matmul_choice.h"
#include "rondo/models/loss.h"
#include "rondo/models/model.h"
#include "rondo/observe/memory.h"
#include "rondo/parallel/ddp/ddp.h"
#include "rondo/parallel/ddp/hooks/registry.h"
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
  int rank = 0;
  int world_size = 1;
  int joint_batch = 1;  // computes on the batches of so many ranks
};

// Times in milliseconds since the first gradient.
nlohmann::json describe(const BackwardTrace& trace) {
  const auto since = [&](long long ns) { return static_cast<double>(ns - trace.first_gradient_ns) * 1e-6; };
  nlohmann::json buckets = nlohmann::json::array();
  for (const BucketTrace& bucket : trace.buckets) {
    buckets.push_back({{"bytes", bucket.bytes.count},
                       {"ready_ms", since(bucket.ready_ns)},
                       {"launched_ms", since(bucket.launched_ns)},
                       {"finished_ms", since(bucket.finished_ns)}});
  }
  return {{"backward_end_ms", since(trace.backward_end_ns)},
          {"end_ms", since(trace.end_ns)},
          {"buckets", buckets}};
}

class Worker {
 public:
  explicit Worker(const WorkerOptions& options)
      : training_(options.training),
        context_(init(init_options(options))),
        model_(make_model(training_.model, training_.config)),
        rank_(options.rank),
        joint_batch_(options.joint_batch) {
    load_weights(training_.weights, named_tensors(*model_.module));
    if (options.strategy == "ddp") {
      DdpOptions ddp_options;
      if (!options.bucket_bytes.empty())
        ddp_options.bucket_bytes = parse_bytes(options.bucket_bytes, "--bucket-bytes");
      ddp_.emplace(*model_.module, context_.world(), ddp_options);
      if (training_.codec != "none") {
        ddp_->register_comm_hook(make_comm_hook(training_.codec, context_.world()));
      }
    }
    const std::vector<at::Tensor> parameters = model_.module->parameters();
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
      const double loss = step(batch);
      answer["step_ms"].push_back(milliseconds(Clock::now() - begin));
      answer["losses"].push_back(loss);
      if (!ddp_) continue;
      answer["comm_ms"].push_back(milliseconds(communication_time(ddp_->last_backward())));
      answer["exposed_comm_ms"].push_back(milliseconds(exposed_communication_time(ddp_->last_backward())));
    }
    if (ddp_) answer["backward"] = describe(ddp_->last_backward());
    answer["matmul"] = matmul_choice().fast ? "fast" : "default";
    answer["peak_bytes"] = memory_.sample().count;
    answer["peak_rss_bytes"] = peak_rss().count;
    return answer;
  }

 private:
  static InitOptions init_options(const WorkerOptions& options) {
    InitOptions result;
    result.backend = options.backend;
    result.rank = options.strategy == "ddp" ? options.rank : 0;
    result.world_size = options.strategy == "ddp" ? options.world_size : 1;
    if (options.strategy == "ddp") {
      result.init_method = options.rendezvous;
    } else {
      result.store = c10::make_intrusive<c10d::HashStore>();
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

  double step(const SyntheticBatch& batch) {
    optimizer_->zero_grad();
    if (ddp_) ddp_->before_forward();
    at::Tensor loss;
    {
      std::optional<Autocast> autocast;
      if (training_.dtype == "bfloat16") autocast.emplace(at::kCPU, at::kBFloat16);
      loss = cross_entropy(model_.forward(batch.input), batch.target).mean;
    }
    loss.backward();
    optimizer_->step();
    return loss.item<double>();
  }

  const StepCase training_;
  Context context_;
  Model model_;
  std::optional<DistributedDataParallel> ddp_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  MemoryMeter memory_;
  const int rank_;
  const int joint_batch_;
  std::int64_t step_ = 0;
};

int run_worker(WorkerOptions& options) {
  options.training.config = nlohmann::json::parse(options.config);
  at::set_num_threads(1);
  // On both sides: units that have died leave Adam with averages that shrink into denormals, at three times
  // the step.
  at::globalContext().setFlushDenormal(true);
  Worker worker(options);
  std::cout << nlohmann::json{{"ready", true}}.dump() << std::endl;
  std::string command;
  int steps = 0;
  while (std::cin >> command >> steps) std::cout << worker.run(steps).dump() << std::endl;
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
  command->add_option("--optimizer", options->training.optimizer)->required();
  command->add_option("--codec", options->training.codec);
  command->add_option("--backend", options->backend)->required();
  command->add_option("--rank", options->rank)->required();
  command->add_option("--world-size", options->world_size)->required();
  command->add_option("--rendezvous", options->rendezvous)->required();
  command->add_option("--bucket-bytes", options->bucket_bytes);
  command->add_option("--joint-batch", options->joint_batch);
  return {command, [options] { return run_worker(*options); }};
}

}  // namespace rondo::bench
