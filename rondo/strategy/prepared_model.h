#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/base/time.h"

namespace rondo {

// What a strategy is told before a forward pass.
struct LocalBatch {
  // Samples behind the gradients that will lie in `.grad` after this backward pass: this rank's batch, or
  // with gradient accumulation the whole window. 0 when this rank has run out of data and computes on a
  // stand-in. The combined gradient is the mean over all samples of all ranks, that is sum(samples *
  // gradient) / sum(samples).
  std::int64_t samples = 1;
  // False for all but the last micro-batch of an accumulation window: gradients stay local (DDP's no_sync).
  bool synchronise = true;
};

// Where the last synchronised step spent its time on communication.
struct CommunicationTimes {
  Duration busy{};     // moving and reducing data, overlapped with computation or not
  Duration exposed{};  // computation stood still for it
};

// One operation of the last synchronised step, in monotonic_ns() (base/time.h).
struct CommunicationSpan {
  std::string operation = {};  // "all_reduce"
  std::int64_t bucket = -1;    // which bucket of gradients; -1 when it is not one
  Bytes bytes = {};
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// A module made ready for training by a strategy. A training step is:
//   prepared.begin_step(batch); loss = forward(...); loss.backward(); prepared.finish_backward();
//   optimizer.step();
// All ranks make the same calls; one thread uses an object.
class PreparedModel {
 public:
  virtual ~PreparedModel() = default;

  // The module whose parameters are optimised, the user's own object.
  virtual torch::nn::Module& module() = 0;
  virtual void begin_step(const LocalBatch& batch) = 0;
  // Blocks until gradients are combined over all replicas (unless the step does not synchronise).
  // Throws CommunicationError naming the ranks that are missing.
  virtual void finish_backward() = 0;
  virtual CommunicationTimes communication_times() const = 0;
  // Empty when nothing was communicated. Only called for the few steps that are traced.
  virtual std::vector<CommunicationSpan> communication_spans() const { return {}; }
};

}  // namespace rondo
