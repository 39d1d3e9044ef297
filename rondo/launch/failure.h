#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "rondo/launch/supervisor.h"

namespace rondo::launch {

// The file in which a worker reports the reason for its failure: PyTorch's TORCHELASTIC_ERROR_FILE, JSON
// {"message": {"message": "...", "extraInfo": {"timestamp": "..."}}}; older programs write {"message":
// "..."}.

// Writes `message`, with control characters escaped, to the file that the launcher names in the environment.
// Does nothing without a launcher. Called from the outermost catch of a program. Never throws.
void record_failure(std::string_view message) noexcept;
// Records the message of an exception. Marks a PeerLostError in the file.
void record_failure(const std::exception& error) noexcept;

// Returns the message in `path`; empty if the file is missing or malformed.
std::string read_error_file(const std::string& path);

// Returns whether `path` reports the loss of another process. That process then failed first, even if this
// file was written early.
bool tells_of_lost_peer(const std::string& path);

// Returns the name of a signal: "SIGSEGV", or "signal 40" if it has none.
std::string signal_name(int signal);

// Returns the worker that failed first, as an index into `end.workers`. The time of a failure is the worker's
// exit, or an earlier time of its error file, because a failed worker may hang before it exits. An error file
// that reports a lost peer does not count. Workers that died only of the launcher's TERM or KILL do not
// count. Empty if no worker failed by itself.
std::optional<std::size_t> root_cause(const AttemptEnd& end, const std::vector<WorkerSpec>& specs);

// Returns the exit code of the job: 0 on success, else the root cause's exit code or 128 + its signal. After
// a signal to the launcher: 0 if every worker succeeded, 3 if the others saved their state, else 128 + the
// signal.
int job_exit_code(const AttemptEnd& end, const std::optional<std::size_t>& root);

// Returns a report of several lines: first the root cause (rank, host, pid, how it ended, its error message,
// the last lines of its standard error), then the other workers. Ends with a newline. `started` is the start
// time of the workers.
std::string describe_failure(const AttemptEnd& end, const std::vector<WorkerSpec>& specs, std::size_t root,
                             TimePoint started);

// Returns the root cause as one line for other hosts: "rank 3 on host h was killed by SIGKILL", with its
// error message.
std::string failure_in_a_line(const AttemptEnd& end, const std::vector<WorkerSpec>& specs, std::size_t root);

}  // namespace rondo::launch
