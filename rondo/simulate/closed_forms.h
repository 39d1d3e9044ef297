#pragma once

#include <cstdint>

#include "rondo/cost/profile.h"

// Strategies that are priced by formula.
namespace rondo::simulate {

// A pipeline of `stages` equal parts of the model; one message of activations between neighbours a
// micro-batch.
struct PipelineSettings {
  int stages = 1;
  int micro_batches = 1;
  int interleaved = 1;  // model parts of one stage (Narayanan et al., 2021); 1: plain 1F1B or GPipe
  bool one_forward_one_backward = true;  // false: GPipe, which keeps all micro-batches' activations
  double message_s = 0;  // sending one micro-batch's activations to the next stage, not overlapped
};
struct ClosedForm {
  double step_s = 0;
  double idle_share = 0;         // of the step, of a rank
  std::uint64_t peak_bytes = 0;  // of the rank that needs most
};
// Step (m - 1 + (p - 1) / v) slots longer than one micro-batch: idle share (p - 1) / (v m + p - 1) without
// messages.
ClosedForm pipeline_step(const cost::Profile& profile, const PipelineSettings& settings);

// Workers send gradients to servers that own the parameters in equal parts, and read them back.
struct ParameterServerSettings {
  int workers = 1;
  int servers = 1;
  double worker_bytes_per_s = 1e9;
  double server_bytes_per_s = 1e9;
  bool is_synchronous = true;  // asynchronous: a worker waits only for its own bytes
};
// The slower of a worker's link, which carries gradients out and parameters in at the same time, and a
// server's, which carries those of all workers; pushing goes on under backward, pulling under forward.
ClosedForm parameter_server_step(const cost::Profile& profile, const ParameterServerSettings& settings);

}  // namespace rondo::simulate
