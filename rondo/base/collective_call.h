#pragma once

#include <cstdint>

namespace rondo {

// The library's calls that all ranks make together. Each collective operation carries the one that it belongs
// to, so that ranks in different calls are told so, by name.
enum class CollectiveCall : std::uint8_t {
  none,            // a thread that is in none of them, or an operation of the caller's own
  prepare,         // Strategy::prepare
  fit,             // Trainer::fit
  train_step,      // a step of a trainer or a strategy
  train_on_batch,  // Trainer::train_on_batch
  evaluate,        // Trainer::evaluate
  predict,         // Trainer::predict
  save,            // Trainer::save
  finish_save,     // Trainer::finish_save
  restore,         // Trainer::restore
  load_weights,    // Trainer::load_weights
  weights,         // Trainer::weights
  put_weights,     // weights of a strategy, given
  show_weights,    // weights of a strategy, unsharded
  weights_of,      // weights of a prepared model, by name
  hand_over,       // state for the ranks after a rebuild
  rebuild,         // Context::rebuild
  replicate,       // a state in other ranks' memory
  save_loop,       // rondo::save
  load_loop,       // rondo::load
};

// As the caller knows it: "Trainer::save", "train_step".
const char* name(CollectiveCall call);

// The calling thread's own, which CollectiveCallScope alone changes. Each small operation reads it.
extern constinit thread_local CollectiveCall collective_call_of_thread;

// The innermost call that this thread is in.
inline CollectiveCall current_collective_call() { return collective_call_of_thread; }

// While it lives, this thread is in `call`.
class CollectiveCallScope {
 public:
  // From now on; the destructor goes back to the call before.
  explicit CollectiveCallScope(CollectiveCall call);
  CollectiveCallScope(const CollectiveCallScope&) = delete;
  CollectiveCallScope& operator=(const CollectiveCallScope&) = delete;
  ~CollectiveCallScope();

 private:
  CollectiveCall outer_;
};

// Whether both may belong to one call of all ranks: a thread in no call may do the work of any.
inline bool may_be_one(CollectiveCall a, CollectiveCall b) {
  return a == b || a == CollectiveCall::none || b == CollectiveCall::none;
}

}  // namespace rondo
