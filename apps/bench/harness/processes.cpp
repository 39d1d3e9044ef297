#include "apps/bench/harness/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <iostream>

#include "apps/common/child_output.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/launch/spawn.h"

namespace rondo::bench {

namespace fs = std::filesystem;

ChildProcess::ChildProcess(std::string name, const std::vector<std::string>& command,
                           const std::map<std::string, std::string>& environment, const ChildPlace& place)
    : name_(std::move(name)) {
  int to_child[2];
  int from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0) throw Error(str("pipe: ", errno_text(errno)));
  if (pipe2(from_child, O_CLOEXEC) != 0) {
    close(to_child[0]);
    close(to_child[1]);
    throw Error(str("pipe: ", errno_text(errno)));
  }
  // All allocation happens before the fork: other threads of libtorch may hold the allocator's locks.
  std::vector<std::string> words = command;
  std::vector<std::string> variables = environment_with(environment);
  const std::vector<char*> arguments = exec_words(words);
  const std::vector<char*> variable_list = exec_words(variables);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(to_child[0], STDIN_FILENO);
    dup2(from_child[1], STDOUT_FILENO);
    if (place.network_namespace && setns(*place.network_namespace, CLONE_NEWNET) != 0) _exit(126);
    if (place.processor) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(*place.processor, &set);
      sched_setaffinity(0, sizeof(set), &set);
    }
    execvpe(arguments[0], arguments.data(), variable_list.data());
    _exit(127);
  }
  close(to_child[0]);
  close(from_child[1]);
  input_ = to_child[1];
  output_ = from_child[0];
  if (pid_ < 0) {
    close(input_);
    close(output_);
    throw Error(str("cannot start ", name_, ": ", errno_text(errno)));
  }
}

ChildProcess::~ChildProcess() {
  close(input_);
  close(output_);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ChildProcess::write_line(const std::string& text) {
  const std::string line = text + "\n";
  // The next read reports a dead child, so SIGPIPE must not end this process.
  const auto previous = signal(SIGPIPE, SIG_IGN);
  const ssize_t written = write(input_, line.data(), line.size());
  signal(SIGPIPE, previous);
  if (written != static_cast<ssize_t>(line.size())) throw Error(str(name_, " ", describe_end()));
}

std::string ChildProcess::read_line(Deadline deadline) {
  for (;;) {
    const auto end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    pollfd entry{output_, POLLIN, 0};
    const double left = std::min(milliseconds(deadline.remaining()), static_cast<double>(INT_MAX));
    const int ready = poll(&entry, 1, static_cast<int>(left));
    if (ready == 0) throw Error(str(name_, " did not answer in time"));
    if (ready < 0 && errno == EINTR) continue;
    char chunk[4096];
    const ssize_t count = read(output_, chunk, sizeof(chunk));
    if (count <= 0) throw Error(str(name_, " ", describe_end()));
    buffer_.append(chunk, static_cast<std::size_t>(count));
  }
}

nlohmann::ordered_json ChildProcess::read_json(Deadline deadline) {
  return parse_json_strict(read_line(deadline), "the answer of " + name_);
}

bool ChildProcess::answers_within(Duration wait) const {
  pollfd entry{output_, POLLIN, 0};
  return !buffer_.empty() || poll(&entry, 1, static_cast<int>(milliseconds(wait))) > 0;
}

std::string ChildProcess::describe_end() {
  int status = 0;
  siginfo_t info{};
  // Does not reap the child, so that the pid stays valid until the destructor.
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0) return "is gone";
  status = info.si_status;
  if (info.si_code == CLD_EXITED && status == 127) return "could not be started (is the program there?)";
  if (info.si_code == CLD_EXITED && status == 126) return "could not enter its emulated host";
  if (info.si_code == CLD_EXITED) return str("ended with exit code ", status, "; see its messages above");
  return str("was ended by signal ", status);
}

void run_to_end(const std::vector<std::string>& command) {
  if (run_child(command).exit_code != 0) throw Error(str(join(command, " "), " failed; see above"));
}

nlohmann::ordered_json spawn_for_json(int ranks,
                                      const std::function<nlohmann::ordered_json(int rank)>& body) {
  const int results = memfd_create("rondo-bench-results", 0);
  if (results < 0) throw Error(str("cannot store the results: ", errno_text(errno)));
  spawn(
      [&](int rank) {
        const std::string text = body(rank).dump();
        if (rank == 0 && write(results, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
          throw Error(str("cannot store the results: ", errno_text(errno)));
      },
      ranks);
  std::string text(static_cast<std::size_t>(lseek(results, 0, SEEK_END)), '\0');
  const ssize_t count = pread(results, text.data(), text.size(), 0);
  close(results);
  if (count != static_cast<ssize_t>(text.size())) throw Error("cannot read the results back");
  return parse_json_strict(text, "the results of rank 0");
}

fs::path own_program() { return fs::read_symlink("/proc/self/exe"); }

fs::path program_beside(const std::string& name) { return own_program().parent_path() / name; }

launch::ScratchDirectory make_scratch() {
  launch::ScratchDirectory scratch = launch::ScratchDirectory::create();
  if (scratch.path().empty()) throw Error("cannot make a folder in $TMPDIR or /tmp");
  return scratch;
}

std::string python() {
  if (const char* given = std::getenv("RONDO_PYTHON"); given != nullptr && *given != '\0') return given;
  const std::string in_tree = RONDO_SOURCE_DIR "/.venv/bin/python";
  return access(in_tree.c_str(), X_OK) == 0 ? in_tree : "python3";
}

bool peers_take_part(bool wanted) {
  if (!wanted) return false;
  const std::string command = str("'", python(), "' -c 'import torch.distributed.run' >/dev/null 2>&1");
  // Safe for a shell: the command has only rondo's own path or the user's.
  if (std::system(command.c_str()) == 0) return true;
  std::cerr << "skipping PyTorch: " << python()
            << " has no PyTorch; install it with make setup, or set RONDO_PYTHON to another Python\n";
  return false;
}

std::string peer_script(const std::string& name) {
  const fs::path installed = own_program().parent_path().parent_path() / "share/rondo/bench/peers" / name;
  const fs::path in_tree = fs::path(RONDO_SOURCE_DIR) / "bench/peers" / name;
  for (const fs::path& path : {installed, in_tree}) {
    if (fs::exists(path)) return path;
  }
  throw Error(str("the peer's script is neither ", installed.string(), " nor ", in_tree.string()));
}

}  // namespace rondo::bench
