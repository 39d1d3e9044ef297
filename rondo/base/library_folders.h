#pragma once

#include <filesystem>
#include <vector>

namespace rondo {

// Returns the folders where the dynamic linker looks for a library that this program loads by its name, in
// that order: LD_LIBRARY_PATH, the program's run path, the system's folders. Any thread.
std::vector<std::filesystem::path> library_folders();

}  // namespace rondo
