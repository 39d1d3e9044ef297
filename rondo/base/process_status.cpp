#include "rondo/base/process_status.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>

#include "rondo/base/text.h"

namespace rondo {

std::optional<ProcessStatus> ProcessStatus::read(pid_t process) { return read_from(str("/proc/", process)); }

std::optional<ProcessStatus> ProcessStatus::read_own() { return read_from("/proc/self"); }

std::optional<ProcessStatus> ProcessStatus::read_from(const std::string& directory) {
  const int file = open((directory + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::array<char, 4096> text;
  const ssize_t size = ::read(file, text.data(), text.size());
  close(file);
  // The format is "pid (name) state ...". The name may contain any character, so its end is searched from the
  // back.
  const std::string_view line(text.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  const std::size_t name_end = line.rfind(") ");
  if (name_end == std::string_view::npos || name_end + 2 == line.size()) return std::nullopt;
  return ProcessStatus(std::string(line.substr(name_end + 2)));
}

std::uint64_t ProcessStatus::field(int number) const {
  std::string_view rest = fields_;
  for (int skipped = 3; skipped < number; ++skipped) {
    const std::size_t space = rest.find(' ');
    if (space == std::string_view::npos) return 0;
    rest.remove_prefix(space + 1);
  }
  std::uint64_t value = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), value);
  return value;
}

}  // namespace rondo
