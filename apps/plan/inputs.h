#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "rondo/base/cancel.h"
#include "rondo/cost/step_model.h"

namespace rondo {

// Flags of the job to plan or simulate.
struct PlanningInputs {
  std::string profile;    // path of a file
  std::string synthetic;  // "gpt:layers=48,..."
  std::optional<std::uint64_t> random_profile;
  int random_units = 48;
  std::string buffers = "unit";
  std::string segment_bytes;
  int micro_batches = 0;  // micro-batches of a pipeline; 0: not given
  cost::StepOptions options;
};
void add_planning_flags(CLI::App& app, PlanningInputs& inputs);

// Reads or generates the profile. Throws UsageError unless exactly one source is given.
cost::Profile load_profile(const PlanningInputs& inputs);
cost::StepOptions step_options(const PlanningInputs& inputs);

// Cancels its token at the first SIGINT or SIGTERM of the process. The process ends with the signal's default
// action at the second signal, and kPatience after a SIGTERM, because the sender of a SIGTERM does not wait
// long. Must be created before any thread that should not receive the signals.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  const CancelToken& token() const { return token_; }

  static constexpr std::chrono::milliseconds kPatience{800};

 private:
  CancelToken token_;
  CancelToken end_;
  struct Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace rondo
