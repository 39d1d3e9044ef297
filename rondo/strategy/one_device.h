#pragma once

#include "rondo/strategy/process_strategy.h"

namespace rondo {

// One process, one device, no communication: the plain libtorch loop behind the Strategy interface.
class OneDevice final : public ProcessStrategy {
 public:
  // Throws UsageError when the job has more than one rank: they would train separate models unnoticed.
  explicit OneDevice(Context context);
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;
};

}  // namespace rondo
