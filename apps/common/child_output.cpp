#include "apps/common/child_output.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "apps/common/exec_words.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

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
  std::vector<std::string> words = command;
  std::vector<std::string> variables = environment_with(environment);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(str("pipe: ", errno_text(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = -1;
  const int failure = posix_spawnp(&child, command.front().c_str(), &actions, nullptr,
                                   exec_words(words).data(), exec_words(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failure != 0) {
    close(ends[0]);
    throw Error(str("cannot start ", command.front(), ": ", errno_text(failure)));
  }
  ChildOutput output;
  output.text = read_to_end(ends[0]);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

}  // namespace rondo
