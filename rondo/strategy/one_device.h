#pragma once

#include <optional>

#include "rondo/strategy/process_strategy.h"
#include "rondo/strategy/strategy.h"

namespace rondo {

// A strategy with one process and one device, without communication: the plain libtorch loop behind the
// Strategy interface.
class OneDevice final : public ProcessStrategy {
 public:
  // Throws UsageError if the job has more than one rank: each would train a separate model.
  explicit OneDevice(Context context);
  using ProcessStrategy::prepare;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  void rebuild(const Context& context) override;  // throws UsageError for several ranks
};

// Prepares a model that this process trains on its own.
std::unique_ptr<PreparedModel> local_model(std::shared_ptr<torch::nn::Module> module);

// The current strategy outside every scope: one replica, and every operation is local.
class DefaultStrategy final : public Strategy {
 public:
  // Without a context, calls that need one throw: context(), and a Training, which has precision and state of
  // a job. Throws UsageError for a job of several processes, which would train separate models.
  explicit DefaultStrategy(const std::optional<Context>& context = {});

  ReplicaPlacement placement() const override { return placement_; }
  std::unique_ptr<Training> prepare(const Recipe& recipe) override;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  using Strategy::run;
  ReplicaValue run(const std::function<at::Tensor(int replica)>& step) override;

 private:
  ReplicaPlacement placement_;
};

}  // namespace rondo
