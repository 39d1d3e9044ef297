#pragma once

#include "rondo/strategy/process_strategy.h"

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

}  // namespace rondo
