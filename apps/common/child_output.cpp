#include "apps/common/child_output.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/launch/descriptor.h"

extern char** environ;

namespace rondo {

std::vector<char*> exec_words(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& added) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!added.contains(text.substr(0, text.find('=')))) result.push_back(text);
  }
  for (const auto& [key, value] : added) result.push_back(key + "=" + value);
  return result;
}

namespace {

struct Ends {
  launch::Descriptor read_end;
  launch::Descriptor write_end;
};

Ends make_ends() {
  int numbers[2];
  if (pipe2(numbers, O_CLOEXEC) != 0) throw Error(str("pipe: ", errno_text(errno)));
  return {launch::Descriptor(numbers[0]), launch::Descriptor(numbers[1])};
}

std::string read_to_end(int descriptor) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t count = read(descriptor, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

ChildOutput run_child(const std::vector<std::string>& command,
                      const std::map<std::string, std::string>& environment) {
  // All allocation happens before the fork: other threads may hold the allocator's locks.
  std::vector<std::string> words = command;
  std::vector<std::string> variables = environment_with(environment);
  const std::vector<char*> arguments = exec_words(words);
  const std::vector<char*> variable_list = exec_words(variables);
  Ends output_ends = make_ends();
  Ends failure_ends = make_ends();  // exec closes these ends; if it fails they carry the error
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    // posix_spawn cannot set this. With it the child also dies if this process is killed while it waits.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // the parent ended before prctl
    dup2(output_ends.write_end.number(), STDOUT_FILENO);
    execvpe(arguments[0], arguments.data(), variable_list.data());
    const int failure = errno;
    const ssize_t ignored = write(failure_ends.write_end.number(), &failure, sizeof(failure));
    static_cast<void>(ignored);
    _exit(127);
  }
  const int fork_failure = errno;
  output_ends.write_end.reset();
  failure_ends.write_end.reset();
  if (child < 0) throw Error(str("cannot start ", command.front(), ": ", errno_text(fork_failure)));
  const std::string failure = read_to_end(failure_ends.read_end.number());
  ChildOutput output;
  output.text = read_to_end(output_ends.read_end.number());
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (failure.size() == sizeof(int)) {
    int number = 0;
    std::memcpy(&number, failure.data(), sizeof(number));
    throw Error(str("cannot start ", command.front(), ": ", errno_text(number)));
  }
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

}  // namespace rondo
