#pragma once

#include <cstdint>
#include <functional>

#include "rondo/base/time.h"
#include "rondo/strategy/strategy.h"

namespace rondo {

// Whether all ranks are to stop, because one of them was asked to: by one small reduction. Collective.
// Without `requested` (then on all ranks) never, and nothing is sent.
bool stop_on_any(Strategy& strategy, const std::function<bool()>& requested);

// The same for rounds of work that all ranks do at the same time. Ranks ask each other after as many rounds
// as fit into a quarter of a second on the slowest of them, so that a request is heard soon and costs
// nothing.
class StopAgreement {
 public:
  // `requested` outlives the object; it is empty on all ranks or none.
  StopAgreement(Strategy& strategy, const std::function<bool()>& requested);

  // After the work of round 0, 1, ...: whether it was the last one. Collective.
  bool after(std::int64_t round);

 private:
  Strategy& strategy_;
  const std::function<bool()>& requested_;
  TimePoint asked_at_;
  std::int64_t asked_after_ = -1;  // round
  std::int64_t next_ = 0;          // round after which ranks ask again, the same on all of them
};

}  // namespace rondo
