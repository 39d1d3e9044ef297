#include "rondo/launch/supervisor.h"

#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/process.h"
#include "rondo/base/process_status.h"
#include "rondo/base/text.h"
#include "rondo/launch/failure.h"
#include "rondo/launch/process_tree.h"

namespace rondo::launch {
namespace {

// Interval at which workers are checked for suspension. Counts checks instead of measuring time: if the
// launcher was suspended too, its own pause must not count.
constexpr Duration kSuspensionTick = std::chrono::seconds(1);

Deadline earlier_of(Deadline a, Deadline b) { return a.at() < b.at() ? a : b; }

// Ordered: stopping only escalates.
enum class Stage { running, preemption_grace, terminating, killing };

// Receives signals as events instead of in handlers; restores the previous state in the destructor.
class SignalEvents {
 public:
  explicit SignalEvents(const std::set<int>& expected) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (const int signal : expected) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, &before_.mask);
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &before_.pipe);
    descriptor_ = Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!descriptor_.valid()) throw Error("cannot watch signals: " + errno_text(errno));
    // The guardian blocks these signals before it starts this process, so that none is lost. Workers must not
    // start with them blocked.
    for (const int signal : expected) sigdelset(&before_.mask, signal);
    sigdelset(&before_.mask, SIGCHLD);
  }
  SignalEvents(const SignalEvents&) = delete;
  SignalEvents& operator=(const SignalEvents&) = delete;
  ~SignalEvents() { sigaction(SIGPIPE, &before_.pipe, nullptr); }

  int descriptor() const { return descriptor_.number(); }
  const SignalDefaults& before() const { return before_; }
  std::optional<int> next() const {
    signalfd_siginfo info{};
    if (read(descriptor_.number(), &info, sizeof info) != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  SignalDefaults before_{};
  Descriptor descriptor_;
};

std::set<int> signals_to_watch(const SupervisorOptions& options) {
  std::set<int> signals = options.forwarded_signals;
  signals.insert(options.passed_signals.begin(), options.passed_signals.end());
  return signals;
}

// Returns ProcessStatus::state(), or '?' if the process has gone.
char process_state(pid_t process) {
  const auto status = ProcessStatus::read(process);
  return status ? status->state() : '?';
}

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options)
      : options_(options),
        signals_(signals_to_watch(options)),
        out_(loop_, STDOUT_FILENO),
        separate_err_(is_same_file(STDOUT_FILENO, STDERR_FILENO)
                          ? nullptr
                          : std::make_unique<Console>(loop_, STDERR_FILENO)),
        err_(separate_err_ ? *separate_err_ : out_) {}

  AttemptEnd run(const std::vector<WorkerSpec>& specs) {
    loop_.watch_input(signals_.descriptor(), [this] { on_signal(); });
    if (options_.lifeline >= 0) loop_.watch_input(options_.lifeline, [this] { abandon(); });
    start(specs);
    if (options_.patience_of_others) next_look_ = Deadline::after(kSuspensionTick);
    while (!finished()) {
      loop_.run_once(earlier_of(deadline_, next_look_));
      if (deadline_.passed()) escalate();
      if (next_look_.passed()) look_for_suspended_workers();
    }
    for (const auto* const workers : {&retired_, &end_.workers}) {
      for (const auto& worker : *workers) {
        if (worker->out) worker->out->close();
        if (worker->err) worker->err->close();
      }
    }
    retired_.clear();
    for (auto& worker : end_.workers) {
      if (worker->err) {
        worker->end->stderr_tail = worker->err->tail();
        worker->end->stderr_shown_last = worker->err->shown_last() && !err_.broken();
      }
      worker->out.reset();
      worker->err.reset();
    }
    flush_consoles();
    end_.output_error = out_.error();
    return std::move(end_);
  }

  ~Supervisor() {
    // Only after an exception: a worker could not be started.
    if (end_.workers.size() > end_.order.size()) kill_descendants(Deadline::after(options_.grace));
  }

 private:
  void start(const std::vector<WorkerSpec>& specs) {
    exec_errors_ = make_pipe();
    set_nonblocking(exec_errors_.read_end.number());
    specs_ = specs;
    for (const WorkerSpec& spec : specs) {
      end_.workers.emplace_back();
      start(spec, end_.workers.back());
    }
  }

  void start(const WorkerSpec& spec, std::unique_ptr<Worker>& place) {
    const StartContext context{loop_, out_, err_, exec_errors_.write_end.number(), signals_.before()};
    place = start_worker(spec, context);
    loop_.watch_input(place->pidfd.number(), [this, worker = place.get()] { on_worker_end(*worker); });
  }

  const WorkerSpec& spec_of(const Worker& worker) const {
    return specs_[static_cast<std::size_t>(worker.rank)];
  }

  bool all_ended() const { return end_.order.size() == end_.workers.size(); }

  // Returns whether all workers and all their descendants have exited.
  bool finished() {
    if (!all_ended()) return false;
    reap_orphans();
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) return true;
    if (!stopping_orphans_) {
      stopping_orphans_ = true;
      if (stage_ != Stage::killing) {
        signal_descendants(SIGTERM);
        signal_descendants(SIGCONT);
        enter(Stage::terminating, options_.grace);
      } else {
        escalate();
      }
    }
    return false;
  }

  void on_worker_end(Worker& worker) {
    int status = 0;
    if (waitpid(worker.pid, &status, 0) != worker.pid) return;
    loop_.forget(worker.pidfd.number());
    WorkerEnd end;
    end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (worker.outlasted) end.suspended = worker.suspended;
    end.core_dumped = WIFSIGNALED(status) && WCOREDUMP(status);
    end.at = Clock::now();
    end.wall_time = std::chrono::system_clock::now();
    if (end.exit_code == 127) end.exec_error = take_exec_error(worker.rank);
    const std::string& note = spec_of(worker).preemption_file;
    end.preempted = WIFEXITED(status) && end.exit_code == static_cast<int>(ExitCode::preempted) &&
                    (note.empty() || access(note.c_str(), F_OK) == 0);
    worker.end = end;
    end_.order.push_back(worker.rank);
    if (worker.out) worker.out->drain();
    if (worker.err) worker.err->drain();
    reap_orphans();
    if (stage_ == Stage::running) judge(worker);
    if (options_.on_end && end_.workers[static_cast<std::size_t>(worker.rank)].get() == &worker)
      options_.on_end(worker.rank);
  }

  // While no failure has occurred: decides the consequence of a worker's exit for the others.
  void judge(Worker& worker) {
    const WorkerEnd& end = *worker.end;
    if (!end.failed()) return stop_serving();
    if (!end.preempted && tolerate(worker)) return;
    note_running_workers();
    if (end.preempted) {
      enter(Stage::preemption_grace, options_.grace);
    } else {
      terminate();
    }
  }

  // Returns whether the others continue, without this worker or after restarting it.
  bool tolerate(Worker& worker) {
    const WorkerSpec& spec = spec_of(worker);
    const RolePolicy& policy = spec.policy;
    const WorkerEnd& end = *worker.end;
    if (policy.on_failure == OnFailure::stop || end.exit_code == static_cast<int>(ExitCode::usage))
      return false;
    const std::string how = str(spec.name(), " on host ", host_name(),
                                end.signal != 0 ? " was killed by " + signal_name(end.signal)
                                                : str(" exited with code ", end.exit_code));
    if (policy.on_failure == OnFailure::restart) {
      const int starts = worker.starts;
      if (starts > policy.restarts) return false;
      std::fprintf(stderr, "rondo run: %s; restarting it (%d of %d), the others continue\n", how.c_str(),
                   starts, policy.restarts);
      end_.order.pop_back();
      // The error file of this failure must not count as the cause of a later one.
      for (const std::string& file : {spec.error_file, spec.preemption_file}) {
        if (!file.empty()) unlink(file.c_str());
      }
      retired_.push_back(std::move(end_.workers[static_cast<std::size_t>(worker.rank)]));
      auto& place = end_.workers[static_cast<std::size_t>(spec.rank)];
      start(spec, place);
      place->starts = starts + 1;
      return true;
    }
    std::fprintf(stderr, "rondo run: %s; the others continue without it\n", how.c_str());
    end_.tolerated.insert(worker.rank);
    stop_serving();
    return true;
  }

  // Ends the job if only processes that serve others are left.
  void stop_serving() {
    for (const auto& worker : end_.workers) {
      if (!worker->end && !spec_of(*worker).ends_with_others) return;
    }
    for (const auto& worker : end_.workers) {
      if (!worker->end) end_.tolerated.insert(worker->rank);
    }
    if (all_ended()) return;
    terminate();
  }

  // Returns the exec error of a rank. The child wrote it to the pipe before it exited.
  int take_exec_error(int rank) {
    ExecError error{};
    while (read(exec_errors_.read_end.number(), &error, sizeof error) == sizeof error) {
      if (error.rank == rank) return error.error;
      other_exec_errors_.push_back(error);
    }
    for (const ExecError& other : other_exec_errors_) {
      if (other.rank == rank) return other.error;
    }
    return 0;
  }

  void note_running_workers() {
    for (auto& worker : end_.workers) {
      if (worker->end) continue;
      end_.stopped.insert(worker->rank);
      const char state = process_state(worker->pid);
      worker->suspended_at_failure = state == 'T' || state == 't';
    }
  }

  void look_for_suspended_workers() {
    next_look_ = stage_ == Stage::running ? Deadline::after(kSuspensionTick) : Deadline::never();
    if (stage_ != Stage::running) return;
    const Duration patience = options_.patience_of_others();
    for (auto& worker : end_.workers) {
      // A debugger's stop is the different state 't'.
      const bool is_suspended = !worker->end && process_state(worker->pid) == 'T';
      worker->suspended = is_suspended ? worker->suspended + kSuspensionTick : Duration{};
      if (worker->suspended < patience) continue;
      worker->outlasted = true;
      kill(-worker->pid, SIGKILL);  // the worker's exit is then treated as any other
    }
  }

  // Reaps orphans that became children of this process. Leaves workers to on_worker_end, which sees them in
  // the order of their exits.
  void reap_orphans() {
    while (true) {
      siginfo_t info{};
      if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
      const auto is_running = [&](const auto& worker) { return worker->pid == info.si_pid && !worker->end; };
      if (std::any_of(end_.workers.begin(), end_.workers.end(), is_running)) return;
      waitpid(info.si_pid, nullptr, WNOHANG);
    }
  }

  void signal_workers(int signal) {
    for (const auto& worker : end_.workers) {
      // Signals the whole group: a wrapper such as a shell does not forward signals.
      if (!worker->end) kill(-worker->pid, signal);
    }
  }

  void enter(Stage stage, Duration patience) {
    stage_ = std::max(stage_, stage);
    deadline_ = Deadline::after(patience);
  }

  void terminate() {
    signal_workers(SIGTERM);
    signal_workers(SIGCONT);  // a suspended process handles signals only when it continues
    enter(Stage::terminating, options_.grace);
  }

  // Enters the next stage after the time for the current stage has passed.
  void escalate() {
    if (stage_ == Stage::preemption_grace) {
      terminate();
      return;
    }
    signal_descendants(SIGKILL);
    // repeat for processes that were being forked meanwhile
    enter(Stage::killing, std::chrono::milliseconds(100));
  }

  void on_signal() {
    while (const auto signal = signals_.next()) {
      if (*signal == SIGCHLD) {
        reap_orphans();
        continue;
      }
      if (!options_.forwarded_signals.contains(*signal)) {
        signal_workers(*signal);
        continue;
      }
      const bool again = end_.signal == SIGINT && *signal == SIGINT;
      if (end_.signal == 0) {
        end_.signal = *signal;
        note_running_workers();
      }
      if (again) {
        escalate();
      } else if (stage_ < Stage::killing) {
        signal_workers(*signal);
        signal_workers(SIGCONT);
        enter(Stage::terminating, options_.signal_grace);
      }
    }
  }

  void abandon() {
    loop_.forget(options_.lifeline);
    end_.abandoned = true;
    escalate();
    if (stage_ != Stage::killing) escalate();
  }

  // Waits for a slow reader, but only for the grace time after a signal.
  void flush_consoles() {
    std::optional<Deadline> limit;
    while (!end_.abandoned && !(out_.drained() && err_.drained())) {
      if (end_.signal != 0 && !limit) limit = Deadline::after(options_.grace);
      if (limit && limit->passed()) return;
      loop_.run_once(limit.value_or(Deadline::never()));
    }
  }

  SupervisorOptions options_;
  EventLoop loop_;
  SignalEvents signals_;
  Console out_;
  // Null if both streams are one terminal, pipe or file: two consoles would write into each other's lines.
  std::unique_ptr<Console> separate_err_;
  Console& err_;
  Pipe exec_errors_;
  std::vector<ExecError> other_exec_errors_;
  AttemptEnd end_;
  std::vector<WorkerSpec> specs_;
  std::vector<std::unique_ptr<Worker>> retired_;  // workers that were restarted
  Stage stage_ = Stage::running;
  Deadline deadline_ = Deadline::never();
  Deadline next_look_ = Deadline::never();  // next check for suspended workers
  bool stopping_orphans_ = false;
};

}  // namespace

AttemptEnd supervise(const std::vector<WorkerSpec>& specs, const SupervisorOptions& options) {
  Supervisor supervisor(options);
  return supervisor.run(specs);
}

}  // namespace rondo::launch
