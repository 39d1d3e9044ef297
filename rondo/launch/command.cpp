#include "rondo/launch/command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::launch {
namespace {

bool is_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

std::string python() {
  const char* chosen = std::getenv("PYTHON_EXEC");
  return find_program(chosen != nullptr && *chosen != '\0' ? chosen : "python3");
}

}  // namespace

std::string find_program(const std::string& program) {
  if (program.empty()) throw UsageError("the program's name is empty");
  if (program.find('/') != std::string::npos) {
    if (!is_file(program)) {
      throw UsageError(str("program '", program,
                           "': ", access(program.c_str(), F_OK) == 0 ? "not a file" : errno_text(errno)));
    }
    if (access(program.c_str(), X_OK) != 0) {
      throw UsageError(
          str("program '", program, "': ", errno_text(errno), " (chmod +x makes a file executable)"));
    }
    return program;
  }
  const char* path = std::getenv("PATH");
  const std::string directories = path == nullptr ? "/usr/bin:/bin" : path;
  for (const std::string& directory : split(directories, ':')) {
    std::string candidate = (directory.empty() ? "." : directory) + "/" + program;
    if (is_file(candidate) && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  const std::string hint =
      is_file(program) ? str("; write ./", program, " for the file in this directory") : "";
  throw UsageError(str("program '", program, "' was not found in PATH (", directories, ")", hint));
}

std::vector<std::string> make_command(const std::string& program, const std::vector<std::string>& arguments,
                                      const ProgramKind& kind) {
  if (kind.module && kind.no_python) throw UsageError("--module and --no-python exclude each other");
  std::vector<std::string> command;
  if (kind.module) {
    command = {python(), "-u", "-m", program};
  } else if (program.ends_with(".py") && !kind.no_python) {
    if (!is_file(program)) throw UsageError(str("program '", program, "': no such file"));
    command = {python(), "-u", program};
  } else {
    command = {find_program(program)};
  }
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

std::vector<std::string> split_words(std::string_view text, std::string_view flag) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == '\0' && (c == ' ' || c == '\t' || c == '\n')) {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '\'' || c == '"')) {
      quote = c;
      in_word = true;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      in_word = true;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != '\0') throw UsageError(str(flag, " ", text, ": the quote ", quote, " is not closed"));
  if (in_word) words.push_back(word);
  if (words.empty()) throw UsageError(str(flag, ": the command is empty"));
  return words;
}

}  // namespace rondo::launch
