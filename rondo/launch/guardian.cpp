#include "rondo/launch/guardian.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>

#include "rondo/base/error.h"
#include "rondo/base/process_status.h"
#include "rondo/base/text.h"
#include "rondo/launch/descriptor.h"
#include "rondo/launch/failure.h"
#include "rondo/launch/process_tree.h"

namespace rondo::launch {
namespace {

constexpr auto kKillPatience = std::chrono::seconds(10);

// State of the parent during a guarded job; restored by the destructor. Blocks `signals` and SIGCHLD, so that
// no handler of the program receives them. Keeps exit statuses of children and makes this process a
// subreaper.
class ParentDuty {
 public:
  explicit ParentDuty(const std::set<int>& signals) {
    sigemptyset(&forwarded_);
    for (const int signal : signals) sigaddset(&forwarded_, signal);
    sigset_t blocked = forwarded_;
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &mask_before_);
    keep_statuses();
    prctl(PR_GET_CHILD_SUBREAPER, &subreaper_before_, 0, 0, 0);
    become_subreaper();
  }
  ParentDuty(const ParentDuty&) = delete;
  ParentDuty& operator=(const ParentDuty&) = delete;
  ~ParentDuty() {
    prctl(PR_SET_CHILD_SUBREAPER, subreaper_before_, 0, 0, 0);
    sigaction(SIGCHLD, &child_before_, nullptr);
    // Reaps other children of the program that have exited meanwhile: with SIGCHLD ignored, the program does
    // not wait for them.
    while (child_before_.sa_handler == SIG_IGN && waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }

  // Waits for `child` and returns its status; forwards signals to it meanwhile. Does not rely on SIGCHLD,
  // which another thread of the program may receive.
  int wait_for(pid_t child) const {
    const Descriptor end(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
    const Descriptor signals(signalfd(-1, &forwarded_, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!end.valid() || !signals.valid())
      throw Error("cannot watch the job's guardian: " + errno_text(errno));
    std::array<pollfd, 2> watched = {{{end.number(), POLLIN, 0}, {signals.number(), POLLIN, 0}}};
    while (true) {
      if (poll(watched.data(), watched.size(), -1) < 0) continue;
      signalfd_siginfo info{};
      while (read(signals.number(), &info, sizeof info) == sizeof info)
        kill(child, static_cast<int>(info.ssi_signo));
      if (watched[0].revents == 0) continue;
      int status = 0;
      if (waitpid(child, &status, 0) == child) return status;
      throw Error(
          "the job's guardian has ended, but another part of this program waited for it: how the job "
          "ended is not known");
    }
  }

 private:
  // SIGCHLD may be inherited as ignored. Children would then exit without a status and without a signal.
  void keep_statuses() {
    sigaction(SIGCHLD, nullptr, &child_before_);
    struct sigaction keeping = child_before_;
    keeping.sa_flags &= ~SA_NOCLDWAIT;
    if (keeping.sa_handler == SIG_IGN) keeping.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &keeping, nullptr);
  }

  sigset_t forwarded_;
  sigset_t mask_before_;
  struct sigaction child_before_ {};
  int subreaper_before_ = 0;
};

[[noreturn]] void become_guardian(const std::function<int(int)>& job, Pipe lifeline) {
  lifeline.write_end.reset();
  setsid();
  become_subreaper();
  prctl(PR_SET_PDEATHSIG, SIGCONT);  // a suspended guardian would not notice that the lifeline broke
  int code = static_cast<int>(ExitCode::failed);
  try {
    code = job(lifeline.read_end.number());
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    code = static_cast<int>(ExitCode::usage);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

std::set<int> not_ignored(const std::set<int>& signals) {
  std::set<int> result;
  for (const int signal : signals) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) result.insert(signal);
  }
  return result;
}

int run_guarded(const std::function<int(int lifeline)>& job, const std::set<int>& forwarded) {
  const std::vector<pid_t> own = forwarded.empty() ? descendants() : std::vector<pid_t>{};
  const std::set<pid_t> not_of_the_job(own.begin(), own.end());
  Pipe lifeline = make_pipe();
  std::fflush(nullptr);  // both processes would write buffered output
  const ParentDuty duty(forwarded);
  const pid_t guardian = fork();
  if (guardian < 0) throw Error("cannot start the job's guardian: " + errno_text(errno));
  if (guardian == 0) become_guardian(job, std::move(lifeline));
  lifeline.read_end.reset();
  const int status = duty.wait_for(guardian);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  kill_descendants(Deadline::after(kKillPatience), not_of_the_job);
  std::fprintf(stderr, "the job's guardian (pid %d) was killed by %s; all of its workers have been stopped\n",
               guardian, signal_name(WTERMSIG(status)).c_str());
  return 128 + WTERMSIG(status);
}

void set_process_title(const std::string& title) {
  prctl(PR_SET_NAME, title.c_str(), 0, 0, 0);
  const auto status = ProcessStatus::read_own();
  if (!status) return;
  const std::uintptr_t begin = status->field(48);  // addresses of the arguments
  const std::uintptr_t end = status->field(49);
  if (begin == 0 || end <= begin) return;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel reports the address as a number
  auto* const memory = reinterpret_cast<char*>(begin);
  std::memset(memory, 0, end - begin);
  title.copy(memory, end - begin - 1);
}

}  // namespace rondo::launch
