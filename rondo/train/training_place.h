#pragma once

#include <memory>
#include <string>

#include "rondo/backend/context.h"
#include "rondo/options/declaration.h"
#include "rondo/strategy/strategy.h"
#include "rondo/train/callback.h"

namespace rondo {

// This process among those that train, as far as a program must know before it has a strategy: a rank of a
// context that all share, or a worker of parameter servers, whose context is its own.
struct TrainingPlace {
  bool is_served = false;  // by parameter servers
  bool writes = true;      // the run directory: rank 0, or the chief's
  int reader = 0;          // among those that read parts of the data
  int readers = 1;
  int worker = 0;  // of parameter servers; 0 is the chief

  // A worker of parameter servers that only trains: what the chief does besides is none of its.
  bool only_trains() const { return worker != 0; }
};

// Of a strategy with such workers. With servers `init` becomes what gives this worker's context; `values` are
// the strategy's options. Throws UsageError as env::read_cluster() does.
TrainingPlace training_place(ServedWorker worker, const OptionValues& values, InitOptions& init);

// The file of a worker's rows of metrics: the chief's is metrics.jsonl.
std::string metrics_file(const TrainingPlace& place);

// Steps that this worker did before it was started again; 0 for other strategies.
std::int64_t steps_done_before(const Strategy& strategy);

// After the last step the chief waits for the other workers, so that its last validation and checkpoint are
// of the whole training. Null for other strategies and workers.
std::shared_ptr<Callback> wait_for_workers(Strategy& strategy, const TrainingPlace& place);

}  // namespace rondo
