#pragma once

#include <optional>

#include "rondo/strategy/strategy.h"

namespace rondo {

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
