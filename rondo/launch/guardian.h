#pragma once

#include <functional>
#include <set>
#include <string>

namespace rondo::launch {

// Runs `job` in a second process of this program, so that nothing that `job` starts can outlive this process.
// Returns the result of `job`.
//
// The two processes watch each other. The second process runs the job and is the subreaper of all its
// descendants, so that even a daemon remains below it. It detects any exit of this process through the
// lifeline, and then kills all descendants. If the second process is killed, this process inherits its
// children, kills them and returns 128 + the signal. The second process has its own session. A signal from a
// terminal or shell to the process group therefore reaches only this process, and the workers receive it
// once, by forwarding.
//
// `forwarded` signals to this process are passed on to the second one; a library leaves the set empty. Forks:
// call it before this program starts threads. Throws Error if it cannot fork.
int run_guarded(const std::function<int(int lifeline)>& job, const std::set<int>& forwarded);

// Returns those of `signals` that this program does not ignore (nohup).
std::set<int> not_ignored(const std::set<int>& signals);

// Changes the name of this process in `ps`, `pgrep` and `pkill -f` by overwriting the memory of its command
// line: main's argv must not be used afterwards. Does nothing if /proc does not show that memory.
void set_process_title(const std::string& title);

}  // namespace rondo::launch
