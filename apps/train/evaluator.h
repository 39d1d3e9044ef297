#pragma once

#include "apps/train/flags.h"
#include "rondo/base/error.h"

namespace rondo {

// What a process does that TF_CONFIG makes the evaluator of a job (env::is_evaluator): it trains nothing.
// Each checkpoint that is the newest of --run-dir when it looks there is evaluated on the validation data,
// and its figures become a row of RUN/metrics.evaluator.jsonl. It ends when the training has ended (nobody
// holds the run directory any more) or a signal asks it to, with the last checkpoint evaluated. Throws
// UsageError without
// --run-dir or validation data, TimeoutError when there is no checkpoint and no training begins there within
// --timeout.
ExitCode run_evaluator(const TrainFlags& flags);

}  // namespace rondo
