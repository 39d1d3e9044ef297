#include "rondo/base/collective_call.h"

#include <utility>

namespace rondo {

constinit thread_local CollectiveCall collective_call_of_thread = CollectiveCall::none;

const char* name(CollectiveCall call) {
  switch (call) {
    case CollectiveCall::none:
      return "no call of rondo";
    case CollectiveCall::prepare:
      return "the constructor of Trainer";
    case CollectiveCall::fit:
      return "Trainer::fit";
    case CollectiveCall::train_step:
      return "train_step";
    case CollectiveCall::train_on_batch:
      return "Trainer::train_on_batch";
    case CollectiveCall::evaluate:
      return "Trainer::evaluate";
    case CollectiveCall::predict:
      return "Trainer::predict";
    case CollectiveCall::save:
      return "Trainer::save";
    case CollectiveCall::finish_save:
      return "Trainer::finish_save";
    case CollectiveCall::restore:
      return "Trainer::restore";
    case CollectiveCall::load_weights:
      return "Trainer::load_weights";
    case CollectiveCall::weights:
      return "Trainer::weights";
    case CollectiveCall::put_weights:
      return "Trainer::put_weights";
    case CollectiveCall::show_weights:
      return "Trainer::show_weights";
    case CollectiveCall::weights_of:
      return "Trainer::weights_of";
    case CollectiveCall::hand_over:
      return "Trainer::hand_over";
    case CollectiveCall::rebuild:
      return "Trainer::rebuild";
    case CollectiveCall::save_in_memory:
      return "save_in_memory";
    case CollectiveCall::save_loop:
      return "rondo::save";
    case CollectiveCall::load_loop:
      return "rondo::load";
  }
  return "an unknown call";
}

CollectiveCallScope::CollectiveCallScope(CollectiveCall call)
    : outer_(std::exchange(collective_call_of_thread, call)) {}

CollectiveCallScope::~CollectiveCallScope() { collective_call_of_thread = outer_; }

}  // namespace rondo
