#include "rondo/strategy/strategy_reference.h"

#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/strategy/strategy.h"

namespace rondo {

StrategyReference::StrategyReference(Strategy& strategy, std::string holder)
    : strategy_(&strategy), lifetime_(strategy.lifetime_), holder_(std::move(holder)) {}

Strategy& StrategyReference::operator*() const {
  if (!lifetime_.expired()) return *strategy_;
  throw UsageError(str("the strategy of this ", holder_,
                       " has ended; keep it in a variable that lives longer: `auto strategy"
                       " = rondo::all_strategies().make(...);` before the ",
                       holder_, ", which takes `*strategy`"));
}

}  // namespace rondo
