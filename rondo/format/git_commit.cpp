#include "rondo/format/git_commit.h"

#include <fstream>
#include <string_view>

#include "rondo/base/text.h"

namespace rondo {

namespace fs = std::filesystem;
namespace {

// Maximum number of symbolic references to follow.
constexpr int kMostReferences = 5;

std::string first_line(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  std::getline(file, line);
  return std::string(trim(line));
}

bool is_commit(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Returns the text after `prefix`; empty if the text does not begin with it.
std::string after(const std::string& text, std::string_view prefix) {
  return text.starts_with(prefix) ? std::string(trim(std::string_view(text).substr(prefix.size()))) : "";
}

// Returns the folder with git's files of the repository around `directory`. In a worktree or a submodule,
// .git is a file that names the folder.
fs::path git_folder(fs::path directory) {
  std::error_code code;
  directory = fs::absolute(directory, code);
  for (;; directory = directory.parent_path()) {
    const fs::path entry = directory / ".git";
    if (fs::is_directory(entry, code)) return entry;
    if (fs::is_regular_file(entry, code)) return directory / after(first_line(entry), "gitdir:");
    if (directory == directory.parent_path()) return {};
  }
}

std::string packed_reference(const fs::path& folder, const std::string& name) {
  std::ifstream file(folder / "packed-refs", std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const std::size_t blank = line.find(' ');
    if (blank != std::string::npos && trim(std::string_view(line).substr(blank + 1)) == name)
      return line.substr(0, blank);
  }
  return "";
}

}  // namespace

std::string git_commit(const fs::path& directory) {
  const fs::path folder = git_folder(directory);
  if (folder.empty()) return "";
  // The branches of a worktree are in the main repository.
  const std::string common = first_line(folder / "commondir");
  const fs::path shared = common.empty() ? folder : folder / common;
  std::string value = first_line(folder / "HEAD");
  for (int i = 0; i < kMostReferences && !is_commit(value); ++i) {
    const std::string name = after(value, "ref:");
    if (name.empty() || name.find("..") != std::string::npos) return "";
    value = first_line(folder / name);
    if (value.empty()) value = first_line(shared / name);
    if (value.empty()) value = packed_reference(shared, name);
  }
  return is_commit(value) ? value : "";
}

}  // namespace rondo
