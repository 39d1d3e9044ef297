#pragma once

#include <functional>
#include <set>
#include <string>

namespace rondo::launch {

// Runs `job` in a second process of this program, such that nothing it starts can outlive this one. Returns
// what `job` returned.
//
// Two processes hold each other's life: the second one does the work and is the subreaper of all that it
// starts, so that even a daemon stays below it; it learns of this process's end, however that comes about, by
// the lifeline, and kills everything. If the second one is killed, this process inherits all of its children
// and kills them, and returns 128 + the signal. The second process has a session of its own, so that a
// terminal's or a shell's signal to the group reaches only this one, and the workers once: by forwarding.
//
// `forwarded` signals to this process are passed on to the second one; a library leaves it empty. To be
// called before this program starts threads, as it forks. Throws Error when it cannot fork.
int run_guarded(const std::function<int(int lifeline)>& job, const std::set<int>& forwarded);

// Those of `signals` that this program was not told to ignore (nohup).
std::set<int> not_ignored(const std::set<int>& signals);

// Changes how `ps`, `pgrep` and `pkill -f` name this process, by writing over its command line's memory:
// main's argv must not be used afterwards. Does nothing where /proc does not show where that is.
void set_process_title(const std::string& title);

}  // namespace rondo::launch
