#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "rondo/base/cancel.h"
#include "rondo/cost/step_model.h"

namespace rondo {

// The flags that say what is planned or simulated.
struct PlanningInputs {
  std::string profile;    // a file
  std::string synthetic;  // "gpt:layers=48,..."
  std::optional<std::uint64_t> random_profile;
  int random_units = 48;
  std::string buffers = "unit";
  std::string block_bytes;
  int micro_batches = 0;  // of a pipeline; 0: not said
  cost::StepOptions options;
};
void add_planning_flags(CLI::App& app, PlanningInputs& inputs);

// Reads or makes the profile. Throws UsageError unless exactly one source is given.
cost::Profile load_profile(const PlanningInputs& inputs);
cost::StepOptions step_options(const PlanningInputs& inputs);

// Cancels its token when the process gets SIGINT or SIGTERM for the first time; the second time, and where it
// has not ended kPatience after a SIGTERM, the process ends as usual: whoever sends that one does not wait
// long. Made before any thread that should not see the signals.
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
