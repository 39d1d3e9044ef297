#pragma once

#include <cstdint>
#include <functional>

#include "rondo/backend/context.h"
#include "rondo/base/job_error.h"
#include "rondo/base/time.h"
#include "rondo/strategy/strategy.h"

namespace rondo {

// A failure that every rank has received; rank 0 reports it.
class AgreedError : public JobError {
 public:
  using JobError::JobError;
};

// Runs `action`, which must not communicate, and exchanges the outcome between ranks. Returns if it succeeded
// on all of them. Otherwise throws AgreedError on every rank: messages that several ranks share appear once,
// others with their rank. Collective; communication errors propagate unchanged.
void run_agreed(const Context& context, const std::function<void()>& action);

// Returns whether any rank was asked to stop, by one small reduction. Collective. Returns false without
// communication if `requested` is empty (on all ranks).
bool stop_on_any(Strategy& strategy, const std::function<bool()>& requested);

// An agreement on requests to stop for rounds of work that all ranks do concurrently. Ranks communicate once
// in as many rounds as the slowest rank does in 0.25 s, so that requests take effect soon at negligible cost.
class StopAgreement {
 public:
  // `requested` must outlive the object; it is empty on all ranks or none.
  StopAgreement(Strategy& strategy, const std::function<bool()>& requested);

  // Returns, after round 0, 1, ..., whether it was the last one. Collective.
  bool after(std::int64_t round);

 private:
  Strategy& strategy_;
  const std::function<bool()>& requested_;
  TimePoint asked_at_;
  std::int64_t asked_after_ = -1;  // last round with communication
  std::int64_t next_ = 0;          // next round with communication, the same on all ranks
};

}  // namespace rondo
