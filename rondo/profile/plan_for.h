#pragma once

#include <string>

#include "rondo/backend/context.h"
#include "rondo/base/bytes.h"
#include "rondo/base/time.h"
#include "rondo/data/dataset.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/model.h"
#include "rondo/nn/optimizers/optimizer.h"

namespace rondo {

// Options of plan_for() besides the model, the batch and the limit.
struct PlanForOptions {
  OptimizerOptions optimizer = {};                 // optimizer of the training loop
  LossFunction loss = cross_entropy;               // loss that the loop minimises
  int micro_batches = 1;                           // accumulated passes of a step
  Duration time_limit = std::chrono::seconds(10);  // longest search
  Bytes in_flight_limit = MiB(16);                 // ShardedOptions::in_flight_bytes
  std::string codec = "none";  // ShardedOptions::codec; its memory counts towards the limit
};

// Measures `model` on `batch` (one rank's work in a pass) and the link, and plans each unit's strategy and
// the schedule for ranks with `limit` bytes of memory each, for a custom training loop:
//
//   ShardedOptions options;
//   options.plan_text = rondo::plan_for(context, as_model(std::make_shared<Net>()), batch, GiB(2));
//   const auto strategy = rondo::all_strategies().make("planned", context, options);
//
// Takes some seconds. Changes the model's weights. Collective; returns the same text on all ranks. Throws
// UsageError for a world of one rank and for a batch that the model or `options.loss` does not accept. Throws
// AgreedError, naming the smallest feasible limit, if no plan fits `limit`.
std::string plan_for(const Context& context, Model model, const Batch& batch, Bytes limit,
                     const PlanForOptions& options = {});

}  // namespace rondo
