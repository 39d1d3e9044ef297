#pragma once

namespace rondo {

// Signals that stop a training, and output whose reader has gone. The signals are TERM, INT, HUP
// (a closed terminal), in a Slurm job USR1, and those of `--signals-to-handle` (launch::stop_signals()).
//
// Before request_stop_on_signals() there is nothing to save, so they end the process at once, with the exit
// code of a pre-empted training and, on rank 0, a message. Afterwards they are requests that stop_requested()
// reports. Repeated signals never interrupt a save, because schedulers repeat them within milliseconds; only
// a second INT without a launcher ends the process at once.
//
// A reader that closes the pipe (`rondo train ... | head -1`) does not end a training: SIGPIPE is ignored.

// Installs the handlers and releases the signals that the parent program has held (launch::hold_signals()).
// Called at the start of main(), and again when further signals have been requested.
void end_on_stop_signals();
void request_stop_on_signals();
// Called before an error is reported. The error determines the process's exit code, even if a stop signal
// arrives afterwards. The launcher of a job, or Slurm, sends TERM to the other ranks when the first has
// failed, and they may be about to report the same.
void let_error_end_process();
bool stop_requested();

// Returns true if a request to stop explains the loss of a peer before the first step: the peer has received
// the signal earlier, and this process receives it shortly. Reports it on rank 0. For a rank between
// request_stop_on_signals() and its first step, after an exception.
bool stopped_before_first_step();

// Holds the stop signals in the calling thread, for a program that exec is about to start, or for run_job().
void hold_stop_signals();

}  // namespace rondo
