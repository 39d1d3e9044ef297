#pragma once

#include <cstdint>

namespace rondo {

// Calls of the library that all ranks make together. Each collective operation carries the call that it
// belongs to, so that an error about ranks in different calls names both.
enum class CollectiveCall : std::uint8_t {
  none,            // no such call, or an operation that the user's code starts
  prepare,         // Strategy::prepare
  fit,             // Trainer::fit
  train_step,      // step of a trainer or a strategy
  train_on_batch,  // Trainer::train_on_batch
  evaluate,        // Trainer::evaluate
  predict,         // Trainer::predict
  save,            // Trainer::save
  finish_save,     // Trainer::finish_save
  restore,         // Trainer::restore
  load_weights,    // Trainer::load_weights
  weights,         // Trainer::weights
  put_weights,     // set the weights of a strategy
  show_weights,    // unsharded weights of a strategy
  weights_of,      // weights of a prepared model, by name
  hand_over,       // transfer of the training state to other ranks after a rebuild
  rebuild,         // Context::rebuild
  save_in_memory,  // memory checkpoint
  save_loop,       // rondo::save
  load_loop,       // rondo::load
};

// Returns the user's name for the call: "Trainer::save", "train_step".
const char* name(CollectiveCall call);

// The calling thread's current call; only CollectiveCallScope changes it. Thread-local, because every small
// operation reads it.
extern constinit thread_local CollectiveCall collective_call_of_thread;

// Returns the innermost call of the calling thread.
inline CollectiveCall current_collective_call() { return collective_call_of_thread; }

// Marks the calling thread as inside `call` for the lifetime of the object.
class CollectiveCallScope {
 public:
  // Enters `call`; the destructor restores the previous call.
  explicit CollectiveCallScope(CollectiveCall call);
  CollectiveCallScope(const CollectiveCallScope&) = delete;
  CollectiveCallScope& operator=(const CollectiveCallScope&) = delete;
  ~CollectiveCallScope();

 private:
  CollectiveCall outer_;
};

// Returns whether two threads may be in the same call: `none` matches every call.
inline bool may_be_one(CollectiveCall a, CollectiveCall b) {
  return a == b || a == CollectiveCall::none || b == CollectiveCall::none;
}

}  // namespace rondo
