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

// Options for reducing gradients between worker processes; TensorFlow's CommunicationOptions.
struct WorkerExchangeOptions {
  Bytes bytes_per_pack = MiB(25);        // approximate size of the packs of gradients
  std::optional<Duration> timeout = {};  // timeout per pack; empty: the group's
  bool ring = false;           // whether to use reduce-scatter and all-gather instead of the engine's choice
  std::string codec = "none";  // codec of packs, a name for make_comm_hook(); not with `ring`
};

// Reduces the gradients of one replica of each worker process in flat packs, starting with the last
// parameters, which backward completes first.
class WorkerExchange {
 public:
  // Reduces the gradients of `model`'s trained parameters, the same on all ranks of `group`. The group must
  // not be used for anything else.
  WorkerExchange(Group group, const torch::nn::Module& model, const WorkerExchangeOptions& options);

  // Replaces gradients with sum(samples_k * gradient_k) / sum(samples_k) over the ranks k, and `samples` and
  // `totals` with their sums. Collective. Throws CommunicationError naming the missing ranks.
  void combine(double& samples, StepTotals& totals);

  // Save this rank's codec state, and restore it from the states of all ranks, in rank order.
  // restore_communication() returns the reason for a rejection, as PreparedModel::restore_communication()
  // does.
  CommState communication_state() const;
  std::string restore_communication(const std::vector<CommState>& of_ranks);

 private:
  void take_gradients(FlatAllReduce& transfer);

  const Group group_;
  const std::optional<Duration> timeout_;
  std::vector<ModelTensor> parameters_;
  CommHook hook_;          // without a `run` for the engine's all-reduce
  GradientWeight weight_;  // for the current step
  const Transfer::WeightSource weight_source_ = [this]() -> const GradientWeight& { return weight_; };
  std::vector<std::unique_ptr<FlatAllReduce>> transfers_;  // one per pack
};

// Reduces the gradients and sums of all replicas of a job in a step. The threads of a process reduce first;
// with several processes, the first replica of each then represents its process.
class ReplicaExchange {
 public:
  // A replica's contribution to a step, or the sums over replicas.
  struct Step {
    double samples = 0;  // number that the gradients were computed from
    StepTotals totals = {};
  };

  // `models` and `threads` of this process's replicas must outlive the object. `workers` is null for one
  // process.
  ReplicaExchange(ReplicaThreads& threads, const std::vector<torch::nn::Module*>& models,
                  const ReplicaGradients::Options& options, std::unique_ptr<WorkerExchange> workers);

  // Replaces gradients with the mean over the samples of all replicas, and returns the sums of all replicas.
  // Every replica calls it within ReplicaThreads::run(). Throws CommunicationError if a process is lost.
  StepTotals combine(const Step& mine);
  // See WorkerExchange; empty for one process.
  CommunicationState communication_state() const {
    return workers_ ? workers_->communication_state() : CommunicationState();
  }
  std::string restore_communication(const std::vector<CommunicationState>& of_ranks) {
    return workers_ ? workers_->restore_communication(of_ranks) : std::string();
  }
  // Return times and spans of the last combine(), measured by replica 0.
  const CommunicationTimes& times() const { return times_; }
  const std::vector<TraceSpan>& spans() const { return spans_; }

 private:
  struct alignas(64) Slot {
    Step steps[2];
    std::size_t turns = 0;  // number of combine() calls
  };

  ReplicaThreads& threads_;
  ReplicaGradients gradients_;
  std::unique_ptr<WorkerExchange> workers_;
  std::vector<Slot> slots_;  // by replica
  Step joint_;               // sum over all processes
  CommunicationTimes times_;
  std::vector<TraceSpan> spans_;
  Bytes bytes_;  // size of a replica's gradients
};

}  // namespace rondo
