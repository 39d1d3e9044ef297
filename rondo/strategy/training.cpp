#include "rondo/strategy/training.h"

#include "rondo/base/error.h"

namespace rondo {

ShardedState Training::state() {
  prepared().parts().flush();
  return local_state(prepared(), &optimizer(), precision().master_weights());
}

void Training::state_loaded(std::int64_t /*steps*/) {
  precision().weights_changed();
  prepared().parts().publish_shards();
}

void Training::hand_over(const std::vector<int>& /*leaving*/) {
  throw UsageError("this strategy's training cannot go on in another world");
}

int Training::rebuild(const Context& /*context*/) {
  throw UsageError("this strategy's training cannot go on in another world");
}

}  // namespace rondo
