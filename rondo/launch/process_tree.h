#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

#include "rondo/base/time.h"

namespace rondo::launch {

// Returns all descendants of this process. Includes a process that left its session or group (setsid, double
// fork), because this process adopts orphans (become_subreaper). `except` lists children to leave out
// together with their descendants.
std::vector<pid_t> descendants(const std::set<pid_t>& except = {});

// Makes this process the new parent of orphaned descendants, instead of init.
void become_subreaper();

// Sends `signal` to all descendants.
void signal_descendants(int signal, const std::set<pid_t>& except = {});

// Kills and reaps all descendants repeatedly until none is left, because they may still be forking. Returns
// false if some remain at the deadline (a process in an uninterruptible system call). SIGCHLD must be blocked
// in the calling thread.
bool kill_descendants(Deadline deadline, const std::set<pid_t>& except = {});

}  // namespace rondo::launch
