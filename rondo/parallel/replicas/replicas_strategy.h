#pragma once

#include <memory>

#include "rondo/parallel/replicas/replicas_training.h"
#include "rondo/strategy/strategy.h"

namespace rondo {

// Base of strategies with several replicas in a process, each with its thread.
class ReplicasStrategy : public Strategy {
 public:
  // Throws UsageError for a device that is none, or a CUDA device that stands twice.
  ReplicasStrategy(Context context, ReplicasSettings settings, int replicas);

  ReplicaPlacement placement() const override;
  using Strategy::prepare;
  std::unique_ptr<Training> prepare(const Recipe& recipe) override;
  // `step` runs in all threads at a time, each within the scope of this strategy.
  using Strategy::run;
  ReplicaValue run(const std::function<at::Tensor(int replica)>& step) override;

 protected:
  // The threads of the replicas, which trainings keep alive.
  const std::shared_ptr<ReplicaThreads>& threads() const { return threads_; }
  // Returns the devices of the replicas: where none were named, Context::devices() of the rank's device
  // `first`. Throws UsageError for devices that are not there.
  std::vector<c10::Device> devices_from(c10::Device first) const;

 private:
  ReplicasSettings settings_;
  std::shared_ptr<ReplicaThreads> threads_;
  ReplicaValues values_;  // that replicas combine inside run()
};

}  // namespace rondo
