#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/base/bytes.h"
#include "rondo/base/time.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/flat_all_reduce.h"
#include "rondo/parallel/gradients/step_announcement.h"
#include "rondo/parallel/hooks/comm_hook.h"
#include "rondo/parallel/replicas/replica_gradients.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/step_totals.h"

namespace rondo {

// How worker processes combine gradients; TensorFlow's CommunicationOptions.
struct WorkerExchangeOptions {
  Bytes bytes_per_pack = MiB(25);        // gradients travel in packs of about this size
  std::optional<Duration> timeout = {};  // longest wait for a pack; empty: the group's
  bool ring = false;                     // reduce-scatter and all-gather, rather than what the engine chooses
  std::string codec = "none";            // how packs travel, a name for make_comm_hook; not with `ring`
};

// Combines the gradients of one replica of each worker process in flat packs, the last parameter's first,
// since backward completes it first.
class WorkerExchange {
 public:
  // The gradients of `model`'s trained parameters, the same on all ranks of `group`, which nobody else uses.
  WorkerExchange(Group group, const torch::nn::Module& model, const WorkerExchangeOptions& options);

  // Gradients become sum(samples_k * gradient_k) / sum(samples_k) over the ranks k, `samples` and `totals`
  // sums over them. Collective. Throws CommunicationError naming the ranks that are missing.
  void combine(double& samples, StepTotals& totals);

  // What the codec remembers from step to step, of this rank; and back, from what all ranks have saved, in
  // rank order. Returns why it was not taken, as PreparedModel::restore_communication() does.
  CommState communication_state() const;
  std::string restore_communication(const std::vector<CommState>& of_ranks);

 private:
  void take_gradients(FlatAllReduce& transfer);

  const Group group_;
  const std::optional<Duration> timeout_;
  std::vector<ModelTensor> parameters_;
  CommHook hook_;          // runs nothing for the engine's all-reduce
  GradientWeight weight_;  // of this step
  const Transfer::WeightSource weight_source_ = [this]() -> const GradientWeight& { return weight_; };
  std::vector<std::unique_ptr<FlatAllReduce>> transfers_;  // a pack each
};

// What all replicas of a job combine in a step: gradients, and the sums of what they did. Those of a process
// first, by its threads; then the first replica of each process speaks for it, where there are several.
class ReplicaExchange {
 public:
  // What a replica brings to a step, and the sums that come back.
  struct Step {
    double samples = 0;  // behind its gradients
    StepTotals totals = {};
  };

  // `models` of this process's replicas, `threads` their threads, both outlive the object. `workers` is null
  // for one process.
  ReplicaExchange(ReplicaThreads& threads, const std::vector<torch::nn::Module*>& models,
                  const ReplicaGradients::Options& options, std::unique_ptr<WorkerExchange> workers);

  // Within ReplicaThreads::run(), by every replica: its gradients become the mean over the samples of all
  // replicas. Returns the sums of all replicas. Throws CommunicationError when a process is lost.
  StepTotals combine(const Step& mine);
  // See WorkerExchange; nothing for one process.
  CommunicationState communication_state() const {
    return workers_ ? workers_->communication_state() : CommunicationState();
  }
  std::string restore_communication(const std::vector<CommunicationState>& of_ranks) {
    return workers_ ? workers_->restore_communication(of_ranks) : std::string();
  }
  // Of the last combine(), by replica 0.
  const CommunicationTimes& times() const { return times_; }
  const std::vector<TraceSpan>& spans() const { return spans_; }

 private:
  struct alignas(64) Slot {
    Step steps[2];
    std::size_t turns = 0;  // combine() calls
  };

  ReplicaThreads& threads_;
  ReplicaGradients gradients_;
  std::unique_ptr<WorkerExchange> workers_;
  std::vector<Slot> slots_;  // by replica
  Step joint_;               // of all processes
  CommunicationTimes times_;
  std::vector<TraceSpan> spans_;
  Bytes bytes_;  // of a replica's gradients
};

}  // namespace rondo
