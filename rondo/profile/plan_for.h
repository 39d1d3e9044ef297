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

// What a plan is made for, besides the model, a batch and a limit.
struct PlanForOptions {
  OptimizerOptions optimizer = {};                 // that will move the weights
  LossFunction loss = cross_entropy;               // what the loop minimises
  int micro_batches = 1;                           // passes accumulated in a step
  Duration time_limit = std::chrono::seconds(10);  // longest search
  Bytes in_flight_limit = MiB(16);                 // ShardedOptions::in_flight_bytes
  std::string codec = "none";                      // ShardedOptions::codec, whose memory the limit holds too
};

// Measures `model` on `batch` (what one rank computes in a pass) and the link, and plans each unit's strategy
// and the schedule for ranks of `limit` bytes of memory each, for a loop of one's own:
//
//   ShardedOptions options;
//   options.plan_text = rondo::plan_for(context, as_model(std::make_shared<Net>()), batch, GiB(2));
//   const auto strategy = rondo::all_strategies().make("planned", context, options);
//
// Takes some seconds, and `model` with it: its weights change. The same text on all ranks. Collective. Throws
// UsageError for a world of one and for a batch that the model or `options.loss` does not take, and
// AgreedError for a limit that no plan fits, naming the smallest that one does.
std::string plan_for(const Context& context, Model model, const Batch& batch, Bytes limit,
                     const PlanForOptions& options = {});

}  // namespace rondo
