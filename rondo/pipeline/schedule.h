#pragma once

#include <string>
#include <vector>

// Pipeline schedules as data: the computations and messages of each rank, in order. Torch-free.
namespace rondo::pipeline {

// The kind of an action of a rank for a stage and a micro-batch.
enum class ActionKind {
  forward,             // computes the stage's outputs
  backward,            // computes gradients of the stage's inputs and parameters
  backward_input,      // computes gradients of the inputs only; the previous stage needs them
  backward_weight,     // computes gradients of the parameters, after backward_input
  send_activation,     // sends the stage's outputs to the next stage
  receive_activation,  // receives the stage's inputs from the previous stage
  send_gradient,       // sends the gradients of the inputs to the previous stage
  receive_gradient,    // receives the gradients of the outputs from the next stage
};

// An entry of a rank's list. Sends do not wait for their receivers. A receive is only posted; the forward or
// backward that needs the message waits for it.
struct Action {
  ActionKind kind = ActionKind::forward;           // kind of the action
  int stage = 0;                                   // from 0, in model order
  int micro_batch = 0;                             // from 0
  bool operator==(const Action&) const = default;  // member-wise equality
};

// The schedule of one step. Gradients of every stage are accumulated in the order of micro-batches.
struct Schedule {
  std::string name = {};                          // "1f1b"
  int ranks = 1;                                  // ranks of the pipeline
  int micro_batches = 1;                          // micro-batches of a batch
  std::vector<int> rank_of_stage = {};            // rank by stage
  std::vector<std::vector<Action>> actions = {};  // by rank
  // Number of stages of the model, over all ranks.
  int stages() const { return static_cast<int>(rank_of_stage.size()); }
};

// Returns gpipe, 1f1b, interleaved, zb_h1, zb_v.
const std::vector<std::string>& schedule_names();
// Returns the number of stages per rank under that schedule: 1, for zb_v 2, for interleaved `chunks`. Throws
// UsageError for an unknown name, and for fewer than 2 chunks of interleaved.
int stages_per_rank(const std::string& name, int chunks = 2);
// Returns the schedule of that name. `chunks` is for interleaved alone. Sources: GPipe (Huang, 2019), 1F1B
// (PipeDream-flush) and interleaved (Narayanan, 2021), zb_h1 and zb_v (Qi, 2024). Throws UsageError for an
// unknown name, and for fewer than 1 rank, 1 micro-batch or 2 chunks.
Schedule make_schedule(const std::string& name, int ranks, int micro_batches, int chunks = 2);

// Returns the forward passes alone: each rank runs its stages in order, each for all micro-batches.
Schedule forward_only(const Schedule& schedule);
// Moves receives so that all ranks order their messages alike, by the order of sends. On an engine that
// ignores tags each receive then matches its send. No ranks deadlock, even if every send waits for its
// receive. Computations and sends keep their places.
Schedule in_message_order(const Schedule& schedule);

// Returns "F2.5": the kind's letter (F, B, I, W; s and r send and receive activations, S and R gradients),
// stage and micro-batch.
std::string to_string(const Action& action);
// Returns one line per rank.
std::string to_text(const Schedule& schedule);

// Returns the faults of a schedule, one phrase each: a pass that is missing, duplicate, or on another rank
// than its stage; a receive without its send or vice versa; a deadlock.
std::vector<std::string> faults_of(const Schedule& schedule);
// Returns by rank the largest number of activations alive at a time. A rank holds one activation per
// micro-batch and stage, from forward to the last backward pass of it.
std::vector<int> peak_activations(const Schedule& schedule);
// Returns a bound of peak_activations() by formula: gpipe m; 1f1b min(m, p - rank); interleaved min(v m, (v -
// 1) p + 2 (p - rank - 1) + 1) if p divides m or m <= p; zb_h1 at most min(m, p); zb_v at most min(2 m, 2 p).
int activation_bound(const Schedule& schedule, int rank);
// Returns by stage the largest number of micro-batches' activations alive at a time.
std::vector<int> activations_of_stages(const Schedule& schedule);

}  // namespace rondo::pipeline
