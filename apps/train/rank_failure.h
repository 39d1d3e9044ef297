#pragma once

#include <functional>

#include "rondo/backend/context.h"

// How the ranks of a job end with an error: the launcher hears of it, and it is printed once.
namespace rondo {

// Returns what `body` returns. What it throws is recorded for the launcher (rondo/launch/failure.h), of a
// JobError by the rank that reports it, and thrown on, for the command line to print. From then on the
// error's exit code is the process's (let_error_end_process()).
int record_failures(const std::function<int()>& body);

// For every rank where a JobError has come up, before it is thrown on: no rank ends before the one that
// reports the error can no longer be ended by the launcher because of that. Collective.
void stand_by_report(const Context& context);

}  // namespace rondo
