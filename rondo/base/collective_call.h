#pragma once

#include <cstdint>

namespace rondo {

// The library's calls that all ranks make together. Each collective operation carries the one that it belongs
// to, so that ranks in different calls are told so, by name.
enum class CollectiveCall : std::uint8_t {
  none,  // a thread that is in none of them, or an operation of the caller's own
  prepare,
  fit,
  train_step,
  train_on_batch,
  evaluate,
  predict,
  save,
  finish_save,
  restore,
  load_weights,
  weights,
  put_weights,
  show_weights,
  weights_of,
  hand_over,
  rebuild,
  replicate,
  save_loop,
  load_loop,
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
