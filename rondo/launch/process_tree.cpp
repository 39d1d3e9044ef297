#include "rondo/launch/process_tree.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>

#include "rondo/base/process_status.h"

namespace rondo::launch {
namespace {

std::multimap<pid_t, pid_t> children_by_parent() {
  std::multimap<pid_t, pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (proc == nullptr) return children;
  while (const dirent* entry = readdir(proc.get())) {
    pid_t pid = 0;
    const char* const end = entry->d_name + std::strlen(entry->d_name);
    if (std::from_chars(entry->d_name, end, pid).ptr != end) continue;
    // Includes zombies, which keep their children until they are reaped.
    const auto status = ProcessStatus::read(pid);
    if (status) children.emplace(status->parent(), pid);
  }
  return children;
}

// Reaps exited children, except those in `except`. Returns false if no other children remain.
bool reap(const std::set<pid_t>& except) {
  if (except.empty()) {
    while (true) {
      const pid_t pid = waitpid(-1, nullptr, WNOHANG);
      if (pid == 0) return true;
      if (pid < 0 && errno != EINTR) return false;
    }
  }
  bool left = false;
  for (const auto& [parent, pid] : children_by_parent()) {
    if (parent == getpid() && !except.contains(pid)) left = waitpid(pid, nullptr, WNOHANG) == 0 || left;
  }
  return left;
}

}  // namespace

std::vector<pid_t> descendants(const std::set<pid_t>& except) {
  const std::multimap<pid_t, pid_t> children = children_by_parent();
  std::vector<pid_t> found = {getpid()};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) {
      if (i > 0 || !except.contains(child->second)) found.push_back(child->second);
    }
  }
  found.erase(found.begin());
  return found;
}

void become_subreaper() { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

void signal_descendants(int signal, const std::set<pid_t>& except) {
  for (const pid_t pid : descendants(except)) kill(pid, signal);
}

bool kill_descendants(Deadline deadline, const std::set<pid_t>& except) {
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  while (true) {
    signal_descendants(SIGKILL, except);
    if (!reap(except)) return true;
    if (deadline.passed()) return false;
    // An orphan may die before it becomes a child of this process: look again soon even without a signal.
    const timespec soon{0, 10'000'000};
    sigtimedwait(&child_signal, nullptr, &soon);
  }
}

}  // namespace rondo::launch
