#pragma once

#include <cstdint>
#include <functional>

#include "rondo/backend/context.h"
#include "rondo/base/job_error.h"
#include "rondo/base/time.h"
#include "rondo/strategy/strategy.h"

namespace rondo {

// A failure that every rank knows of. Rank 0 is the one to report it.
class AgreedError : public JobError {
 public:
  using JobError::JobError;
};

// Runs `action`, which must not communicate, and tells all ranks how it went; returns when it went well on
// all of them. Otherwise throws AgreedError on every rank: a message that several ranks share appears once,
// others with their rank. Collective; an error of communication is thrown as it is.
void run_agreed(const Context& context, const std::function<void()>& action);

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
