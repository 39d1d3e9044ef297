#pragma once

#include <memory>
#include <string>

#include "rondo/backend/context.h"
#include "rondo/options/declaration.h"
#include "rondo/strategy/strategy.h"
#include "rondo/train/callback.h"

namespace rondo {

// The place of this process among those that train, as far as a program needs it before it has a strategy: a
// rank of a shared context, or a worker of parameter servers with a separate context.
struct TrainingPlace {
  bool is_served = false;  // whether parameter servers hold the weights
  bool writes = true;      // whether rank 0 of this context writes the run directory
  int reader = 0;          // index among those that read parts of the data
  int readers = 1;
  int worker = 0;  // index among workers of parameter servers; 0 is the chief

  // Returns whether this is a worker of parameter servers other than the chief, which only trains.
  bool only_trains() const { return worker != 0; }
};

// Returns the place for a strategy with such workers. With servers sets `init` to options for this worker's
// context; `values` are the strategy's options. Throws UsageError as env::read_cluster() does.
TrainingPlace training_place(ServedWorker worker, const OptionValues& values, InitOptions& init);

// Returns the file for a worker's metrics; the chief's is metrics.jsonl.
std::string metrics_file(const TrainingPlace& place);

// Returns the steps that this worker did before its restart; 0 for other strategies.
std::int64_t steps_done_before(const Strategy& strategy);

// Returns a callback with which the chief waits for the other workers after its last step, so that its last
// validation and checkpoint cover the whole training. Null for other strategies and workers.
std::shared_ptr<Callback> wait_for_workers(Strategy& strategy, const TrainingPlace& place);

}  // namespace rondo
