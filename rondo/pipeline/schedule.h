#pragma once

#include <string>
#include <vector>

// Schedules of pipelines as data: who computes and sends what, and in which order. Torch-free.
namespace rondo::pipeline {

// What a rank does for a stage and a micro-batch.
enum class ActionKind {
  forward,             // the stage's outputs
  backward,            // gradients of the stage's inputs and of its parameters
  backward_input,      // of its inputs only, which is what the stage before waits for
  backward_weight,     // of its parameters, after backward_input
  send_activation,     // what the stage gives the next one
  receive_activation,  // what the one before gives it
  send_gradient,       // of what it got, to the stage before
  receive_gradient,    // of what it gave, from the next one
};

// One entry of a rank's list. Sends do not wait for their receivers; a receive only says from when on the
// message may come, and the forward or backward that needs it waits.
struct Action {
  ActionKind kind = ActionKind::forward;           // what is done
  int stage = 0;                                   // from 0, in the order of the model
  int micro_batch = 0;                             // from 0
  bool operator==(const Action&) const = default;  // whether both are the same
};

// Of one step. Gradients of every stage are added up in the order of micro-batches.
struct Schedule {
  std::string name = {};                                                 // "1f1b"
  int ranks = 1;                                                         // of the pipeline
  int micro_batches = 1;                                                 // of a batch
  std::vector<int> rank_of_stage = {};                                   // by stage
  std::vector<std::vector<Action>> actions = {};                         // by rank
  int stages() const { return static_cast<int>(rank_of_stage.size()); }  // of the model, over all ranks
};

// gpipe, 1f1b, interleaved, zb_h1, zb_v.
const std::vector<std::string>& schedule_names();
// Stages that each rank has under that schedule: 1, of zb_v 2, of interleaved `chunks`. Throws UsageError for
// another name and fewer than 2 chunks of interleaved.
int stages_per_rank(const std::string& name, int chunks = 2);
// The schedule of that name. `chunks` is for interleaved alone. Sources: GPipe (Huang, 2019), 1F1B
// (PipeDream-flush) and interleaved (Narayanan, 2021), zb_h1 and zb_v (Qi, 2024). Throws UsageError for
// another name, and for fewer than 1 rank, micro-batch or 2 chunks.
Schedule make_schedule(const std::string& name, int ranks, int micro_batches, int chunks = 2);

// The forward passes alone: each rank takes its stages in their order, each with all micro-batches.
Schedule forward_only(const Schedule& schedule);
// Moves receives, such that all ranks have their messages in one order, that of their sends: over an engine
// that ignores tags each receive then meets its send, and no ranks wait for each other in a circle, even
// where every send waits for its receive. Computations and sends keep their places.
Schedule in_message_order(const Schedule& schedule);

// "F2.5": the kind's letter (F, B, I, W; s and r send and receive activations, S and R gradients), stage and
// micro-batch.
std::string to_string(const Action& action);
// A line a rank.
std::string to_text(const Schedule& schedule);

// What is wrong with a schedule, one phrase each: a pass that is missing, twice, or on another rank than its
// stage; a receive without its send or the other way round; an order in which ranks wait for each other.
std::vector<std::string> faults_of(const Schedule& schedule);
// The largest number of micro-batches' activations, one for each of its stages, that each rank holds at a
// time: from forward until the last backward pass of it.
std::vector<int> peak_activations(const Schedule& schedule);
// The formula for the same: gpipe m; 1f1b min(m, p - rank); interleaved min(v m, (v - 1) p + 2 (p - rank - 1)
// + 1) where p divides m or m <= p; zb_h1 at most min(m, p); zb_v at most min(2 m, 2 p).
int activation_bound(const Schedule& schedule, int rank);
// The largest number of micro-batches' activations that each stage by itself holds at a time.
std::vector<int> activations_of_stages(const Schedule& schedule);

}  // namespace rondo::pipeline
