#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rondo/parallel/replicas/replica_gradients.h"
#include "rondo/parallel/replicas/worker_exchange.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

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
