#pragma once

#include <filesystem>
#include <string>

namespace rondo {

// Returns the commit that is checked out in the git repository around `directory`, as 40 or 64 hexadecimal
// digits. Reads git's files and runs no program, so it does not detect uncommitted changes. Returns an empty
// text outside of a repository, before the first commit, and for files that cannot be read.
std::string git_commit(const std::filesystem::path& directory);

}  // namespace rondo
