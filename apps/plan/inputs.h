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
  cost::StepOptions options;
};
void add_planning_flags(CLI::App& app, PlanningInputs& inputs);

// Reads or makes the profile. Throws UsageError unless exactly one source is given.
cost::Profile load_profile(const PlanningInputs& inputs);
cost::StepOptions step_options(const PlanningInputs& inputs);

// Cancels its token when the process gets SIGINT or SIGTERM for the first time; the second time the process
// ends as usual. Made before any thread that should not see the signals.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  const CancelToken& token() const { return token_; }

 private:
  CancelToken token_;
  CancelToken end_;
  struct Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace rondo
