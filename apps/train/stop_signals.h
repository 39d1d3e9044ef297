#pragma once

namespace rondo {

// What TERM and INT do to a training, and what becomes of output that nobody reads.
//
// Until request_stop_on_signals() there is nothing to save: they end the process at once, with the exit code
// of a pre-empted training. From there on they are a request that stop_requested() tells; a second one ends
// the process at once, except under a launcher, which sees to that itself.
//
// A reader that goes away (`rondo train ... | head -1`) does not end a training: SIGPIPE is ignored.

// At the start of main().
void end_on_stop_signals();
void request_stop_on_signals();
// Before an error is reported: its exit code is the process's. The launcher of a job sends TERM to the other
// ranks when the first has failed, and they may be about to report the same.
void let_error_end_process();
bool stop_requested();

}  // namespace rondo
