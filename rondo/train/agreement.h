#pragma once

#include <functional>

#include "rondo/backend/context.h"
#include "rondo/base/job_error.h"

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

}  // namespace rondo
