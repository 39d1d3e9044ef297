#include "rondo/launch/worker.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/terminal.h"
#include "rondo/base/text.h"
#include "rondo/launch/descriptor.h"

namespace rondo::launch {
namespace {

// Creates a pseudo-terminal for a worker's output stream. The worker writes to `write_end`, for which
// isatty() is true and whose size is `size`. The launcher reads the same bytes, untranslated, from
// `read_end`. Reading ends with EIO when the last writer has closed it. Programs started later inherit
// neither end, and neither becomes a controlling terminal. Empty if the system provides none.
std::optional<Pipe> make_pseudo_terminal(TerminalSize size) {
  Pipe ends;
  ends.read_end = Descriptor(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  const int leader = ends.read_end.number();
  std::array<char, 64> name;
  if (leader < 0 || grantpt(leader) != 0 || unlockpt(leader) != 0 ||
      ptsname_r(leader, name.data(), name.size()) != 0)
    return std::nullopt;
  ends.write_end = Descriptor(open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  const int follower = ends.write_end.number();
  termios settings{};
  if (follower < 0 || tcgetattr(follower, &settings) != 0) return std::nullopt;
  cfmakeraw(&settings);
  winsize window{};
  window.ws_col = static_cast<unsigned short>(size.columns);
  window.ws_row = static_cast<unsigned short>(size.rows);
  if (tcsetattr(follower, TCSANOW, &settings) != 0 || ioctl(follower, TIOCSWINSZ, &window) != 0)
    return std::nullopt;
  return ends;
}

// Descriptors of a stream: `child` becomes the worker's descriptor, the launcher reads from `source`.
struct StreamEnds {
  Descriptor child;
  Descriptor source;
  Descriptor log_file;
};

// Opens a log for appending: a restarted worker keeps the output that explains its previous exit.
Descriptor open_log(const std::string& path) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file.valid()) throw Error(str("cannot write the log file ", path, ": ", errno_text(errno)));
  return file;
}

StreamEnds open_stream(const StreamSpec& spec) {
  StreamEnds ends;
  if (spec.route == StreamSpec::Route::file) ends.child = open_log(spec.log_path);
  if (spec.route == StreamSpec::Route::pipe) {
    std::optional<Pipe> terminal = spec.terminal ? make_pseudo_terminal(*spec.terminal) : std::nullopt;
    Pipe pipe = terminal ? std::move(*terminal) : make_pipe();
    ends.child = std::move(pipe.write_end);
    ends.source = std::move(pipe.read_end);
    if (!spec.log_path.empty()) ends.log_file = open_log(spec.log_path);
  }
  return ends;
}

std::string prefix(int rank, bool coloured) {
  if (!coloured) return str("[rank ", rank, "] ");
  constexpr std::array colours = {36, 33, 32, 35, 34, 31};
  return str("\x1b[", colours[static_cast<std::size_t>(rank) % colours.size()], "m[rank ", rank, "]\x1b[0m ");
}

std::unique_ptr<WorkerOutput> listen_to(StreamEnds ends, const StreamSpec& spec, int rank, EventLoop& loop,
                                        Console& console) {
  if (!ends.source.valid()) return nullptr;
  WorkerOutput::Targets targets;
  targets.console = spec.shown ? &console : nullptr;
  targets.prefix = prefix(rank, console.coloured());
  targets.log_file = std::move(ends.log_file);
  targets.log_path = spec.log_path;
  return std::make_unique<WorkerOutput>(loop, std::move(ends.source), std::move(targets));
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

void bind_to(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Runs in the child between fork and the worker's own code.
void prepare_child(const WorkerSpec& spec, const StreamEnds& out, const StreamEnds& err, pid_t launcher,
                   const SignalDefaults& signals) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // the launcher died before prctl
  if (!spec.gets_stdin) {
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
  }
  if (out.child.valid()) dup2(out.child.number(), STDOUT_FILENO);
  if (err.child.valid()) dup2(err.child.number(), STDERR_FILENO);
  if (spec.inherited_descriptor >= 0) fcntl(spec.inherited_descriptor, F_SETFD, 0);
  bind_to(spec.cpus);
  sigaction(SIGPIPE, &signals.pipe, nullptr);
  sigset_t mask = signals.mask;
  for (const int signal : spec.held_signals) sigaddset(&mask, signal);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
}

[[noreturn]] void run_program(const WorkerSpec& spec, std::vector<char*> arguments,
                              std::vector<char*> environment, int exec_errors) {
  execve(arguments[0], arguments.data(), environment.data());
  if (errno == ENOEXEC) {  // a script without #!, which a shell would run itself
    arguments.insert(arguments.begin(), const_cast<char*>("/bin/sh"));
    execve("/bin/sh", arguments.data(), environment.data());
  }
  const ExecError error{spec.rank, errno};
  const ssize_t ignored = write(exec_errors, &error, sizeof error);
  static_cast<void>(ignored);
  _exit(127);
}

[[noreturn]] void run_function(const WorkerSpec& spec) {
  clearenv();
  for (const auto& [variable, value] : spec.environment) setenv(variable.c_str(), value.c_str(), 1);
  const int code = spec.function();
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

std::string WorkerSpec::name() const {
  const std::string by_rank = str("rank ", world_rank());
  return task.empty() ? by_rank : str(task, " (", by_rank, ")");
}

std::unique_ptr<Worker> start_worker(const WorkerSpec& spec, const StartContext& context) {
  StreamEnds out = open_stream(spec.out);
  StreamEnds err = open_stream(spec.err);
  // Prepared before fork, so that the child only makes system calls.
  std::vector<std::string> variables;
  for (const auto& [variable, value] : spec.environment) variables.push_back(str(variable, "=", value));
  const std::vector<char*> arguments = pointers(spec.command);
  const std::vector<char*> environment = pointers(variables);

  const pid_t launcher = getpid();
  auto worker = std::make_unique<Worker>();
  worker->rank = spec.rank;
  worker->first_rank = spec.first_rank;
  worker->pid = fork();
  if (worker->pid < 0) throw Error(str("cannot start ", spec.name(), ": ", errno_text(errno)));
  if (worker->pid == 0) {
    prepare_child(spec, out, err, launcher, context.signals);
    if (spec.function) run_function(spec);
    run_program(spec, arguments, environment, context.exec_errors);
  }
  setpgid(worker->pid, worker->pid);  // in parent and child, because either may run first
  worker->pidfd = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, worker->pid, 0)));
  if (!worker->pidfd.valid()) {
    const int error = errno;
    kill(worker->pid, SIGKILL);
    throw Error(
        str("cannot watch ", spec.name(), ": ", errno_text(error), " (pidfd needs Linux 5.3 or newer)"));
  }
  worker->out = listen_to(std::move(out), spec.out, spec.world_rank(), context.loop, context.out);
  worker->err = listen_to(std::move(err), spec.err, spec.world_rank(), context.loop, context.err);
  return worker;
}

}  // namespace rondo::launch
