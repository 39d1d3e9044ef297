#pragma once

#include <optional>

#include "rondo/strategy/process_strategy.h"
#include "rondo/strategy/strategy.h"

namespace rondo {

// One process, one device, no communication: the plain libtorch loop behind the Strategy interface.
class OneDevice final : public ProcessStrategy {
 public:
  // Throws UsageError when the job has more than one rank: they would train separate models unnoticed.
  explicit OneDevice(Context context);
  using ProcessStrategy::prepare;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
  void rebuild(const Context& context) override;  // of one rank
};

// A model that this process trains by itself.
std::unique_ptr<PreparedModel> local_model(std::shared_ptr<torch::nn::Module> module);

// What is current outside of every scope: nothing is spread, every operation is the plain one of this
// process.
class DefaultStrategy final : public Strategy {
 public:
  // Without a context nothing that needs one can be asked: context(), and a Training, which has precision and
  // state of a job. Throws UsageError for a job of several processes, which would train separate models.
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
