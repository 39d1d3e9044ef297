#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/text.h"

namespace rondo {

// Returns "a/b, c", for messages about searched folders.
inline std::string path_list(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> texts;
  for (const std::filesystem::path& path : paths) texts.push_back(path.string());
  return join(texts, ", ");
}

// Location of the libtorch that rondo's programs load. Torch-free: it runs before any program that links
// libtorch, because the dynamic linker's own message names one library and no folder.

// Returns the folder above this program's folder: the prefix of an installation.
std::filesystem::path installation_prefix();

// Returns the folders that a value of LIBTORCH may refer to: a libtorch folder, the parent of a torch
// package, a virtual environment.
std::vector<std::filesystem::path> libtorch_candidates(const std::filesystem::path& given);
// Returns the first candidate with lib/libtorch_cpu.so.
std::optional<std::filesystem::path> find_libtorch_below(const std::filesystem::path& given);
// Returns the version ("2.13.0") from the header that every libtorch has; empty if there is none.
std::string libtorch_version(const std::filesystem::path& directory);

// Returns whether rondo works with a libtorch of this version: any patch release of the minor version that it
// was built with. Returns true for an unknown version (empty).
bool is_libtorch_suitable(const std::string& version);

// Returns the libtorch of child programs: $LIBTORCH if set, else the one that the dynamic linker finds for
// them (LD_LIBRARY_PATH; lib/rondo/libtorch next to the programs; the package torch next to the package
// rondo), else the torch of the active Python, which is started for it. Throws UsageError if LIBTORCH
// contains none or the libtorch found is not suitable. Throws Error naming every searched folder if there is
// none.
std::filesystem::path locate_libtorch();

// Calls locate_libtorch() and makes child programs load the result. Sets LD_LIBRARY_PATH, which takes
// precedence over the paths in the programs, if the dynamic linker would not find it otherwise.
std::filesystem::path use_libtorch();

}  // namespace rondo
