#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/text.h"

namespace rondo {

// "a/b, c": for messages that say where something was looked for.
inline std::string path_list(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> texts;
  for (const std::filesystem::path& path : paths) texts.push_back(path.string());
  return join(texts, ", ");
}

// Which libtorch the programs of rondo load. Torch-free: what looks here is started before anything that
// links it, because the dynamic linker's own message names one library and no folder.

// The folder above the one that this program is in: of an installation, the prefix.
std::filesystem::path installation_prefix();

// The folders that a text like LIBTORCH may mean: a libtorch folder, what holds a torch package, a virtual
// environment.
std::vector<std::filesystem::path> libtorch_candidates(const std::filesystem::path& given);
// The first of them with lib/libtorch_cpu.so.
std::optional<std::filesystem::path> find_libtorch_below(const std::filesystem::path& given);
// "2.13.0", from the header that every libtorch carries; empty when there is none.
std::string libtorch_version(const std::filesystem::path& directory);

// Whether rondo works with a libtorch of this version: with every patch release of the one that it was built
// with. An unknown version (empty) is taken.
bool is_libtorch_suitable(const std::string& version);

// Returns the libtorch of the programs that this one starts: $LIBTORCH where that is set, else the one that
// the dynamic linker finds for them (LD_LIBRARY_PATH; lib/rondo/libtorch beside the programs; the package
// torch beside the package rondo), else the torch of the active Python, which is started for it. Throws
// UsageError when LIBTORCH holds none, or the libtorch found is not suitable; Error naming every folder that
// was looked in when there is none at all.
std::filesystem::path locate_libtorch();

// Returns locate_libtorch(). Where the dynamic linker would not find it by itself, sets LD_LIBRARY_PATH,
// which goes before the paths that programs carry.
std::filesystem::path use_libtorch();

}  // namespace rondo
