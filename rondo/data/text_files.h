#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// Whether content that starts with `head` is text: it has no zero byte (git's rule).
bool looks_like_text(std::string_view head);

// The files to read as one text: `path` itself when it is a file; of a directory every file below it, sorted
// by path, that is not empty and looks like text, or, when `extensions` is not empty, has one of these
// endings. Hidden files and directories (".git") and linked directories are passed over. Throws DataError
// when there is none, saying what was found instead.
std::vector<std::string> find_text_files(const std::string& path, const std::vector<std::string>& extensions);

}  // namespace rondo
