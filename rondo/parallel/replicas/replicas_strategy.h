#pragma once

#include <memory>

#include "rondo/parallel/replicas/replicas_training.h"
#include "rondo/strategy/strategy.h"

namespace rondo {

// Base of strategies with several replicas in a process, each in its own thread.
class ReplicasStrategy : public Strategy {
 public:
  // Creates the threads of `replicas` replicas. Throws UsageError if `replicas` is less than one.
  ReplicasStrategy(Context context, ReplicasSettings settings, int replicas);

  ReplicaPlacement placement() const override;
  using Strategy::prepare;
  std::unique_ptr<Training> prepare(const Recipe& recipe) override;
  // Runs `step` in all threads in parallel, each within the scope of this strategy.
  using Strategy::run;
  ReplicaValue run(const std::function<at::Tensor(int replica)>& step) override;

 protected:
  // Returns the threads of the replicas; trainings share ownership.
  const std::shared_ptr<ReplicaThreads>& threads() const { return threads_; }
  // Returns the devices of the replicas. If none were named, these are Context::devices() for the rank's
  // device `first`. Throws UsageError for devices that do not exist.
  std::vector<c10::Device> devices_from(c10::Device first) const;

 private:
  ReplicasSettings settings_;
  std::shared_ptr<ReplicaThreads> threads_;
  ReplicaValues values_;  // collectives that replicas call inside run()
};

}  // namespace rondo
