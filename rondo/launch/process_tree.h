#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

#include "rondo/base/time.h"

namespace rondo::launch {

// Processes below this one: children, their children and so on. A process that left its session or group
// (setsid, double fork) is still found, because this process is the one that orphans below it are given to
// (become_subreaper). `except` are children that are left out, with everything below them.
std::vector<pid_t> descendants(const std::set<pid_t>& except = {});

// From now on, processes below this one whose parent dies become children of this one instead of init's.
void become_subreaper();

// Sends `signal` to everything below this process.
void signal_descendants(int signal, const std::set<pid_t>& except = {});

// Kills everything below this process and reaps it, again and again until nothing is left, as the victims may
// still be forking. False when something is left at the deadline (a process in an uninterruptible system
// call). SIGCHLD must be blocked in the calling thread.
bool kill_descendants(Deadline deadline, const std::set<pid_t>& except = {});

}  // namespace rondo::launch
