#pragma once

#include <functional>
#include <string>

#include "rondo/backend/context.h"
#include "rondo/base/error.h"

namespace rondo {

// A failure that every rank knows of. Rank 0 is the one to report it, so that a job gives one error and not
// one per rank.
class AgreedError : public Error {
 public:
  AgreedError(const std::string& message, ExitCode exit_code, bool mine_to_report)
      : Error(message), exit_code_(exit_code), mine_to_report_(mine_to_report) {}
  // usage when all failures were UsageErrors, else failed.
  ExitCode exit_code() const { return exit_code_; }
  bool mine_to_report() const { return mine_to_report_; }

 private:
  ExitCode exit_code_;
  bool mine_to_report_;
};

// Runs `action`, which must not communicate, and tells all ranks how it went; returns when it went well on
// all of them. Otherwise throws AgreedError on every rank: a message that several ranks share appears once,
// others with their rank. Collective; an error of communication is thrown as it is.
void run_agreed(const Context& context, const std::function<void()>& action);

}  // namespace rondo
