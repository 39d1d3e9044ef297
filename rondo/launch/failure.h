#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "rondo/launch/supervisor.h"

namespace rondo::launch {

// The file in which a worker says why it failed: PyTorch's TORCHELASTIC_ERROR_FILE, JSON
// {"message": {"message": "...", "extraInfo": {"timestamp": "..."}}}; older programs write {"message":
// "..."}.

// Writes `message`, with what a terminal would obey escaped, to the file that the launcher named in the
// environment; does nothing without a launcher.
// For the outermost catch of a program. Never throws.
void record_failure(std::string_view message) noexcept;
// The same of an exception. Of a PeerLostError the file says so.
void record_failure(const std::exception& error) noexcept;

// The message in `path`, or an empty text when there is no such file or it is malformed.
std::string read_error_file(const std::string& path);

// Whether `path` tells of the end of another process: then that came first, however early this was written.
bool tells_of_lost_peer(const std::string& path);

// "SIGSEGV"; "signal 40" for one without a name.
std::string signal_name(int signal);

// The worker whose failure came first, as an index into `end.workers`. The time of a failure is that of the
// worker's end, or of its error file where it wrote one earlier (a worker may hang on its way out) that does
// not tell of another's end. Workers that only died of the launcher's own TERM or KILL do not count. Empty
// when none failed by itself.
std::optional<std::size_t> root_cause(const AttemptEnd& end, const std::vector<WorkerSpec>& specs);

// Exit code of a job that ended like this: 0; the root cause's exit code, or 128 + its signal; after a signal
// to the launcher 0 when every worker ended well, 3 when the rest of them saved their state, else 128 + that
// signal.
int job_exit_code(const AttemptEnd& end, const std::optional<std::size_t>& root);

// Several lines for people: the root cause first (rank, host, pid, how it ended, its own message, the last
// lines of its standard error), then what became of the others. Ends with a line end. `started` is when the
// workers were.
std::string describe_failure(const AttemptEnd& end, const std::vector<WorkerSpec>& specs, std::size_t root,
                             TimePoint started);

// The root cause alone, in one line for other hosts: "rank 3 on host h was killed by SIGKILL", and what it
// said of its failure.
std::string failure_in_a_line(const AttemptEnd& end, const std::vector<WorkerSpec>& specs, std::size_t root);

}  // namespace rondo::launch
