#include "apps/common/libtorch_location.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libtorch_cpu.so";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool exists_quietly(const fs::path& path) {
  std::error_code unreadable;
  return fs::exists(path, unreadable);
}

fs::path real(const fs::path& path) {
  std::error_code missing;
  const fs::path result = fs::canonical(path, missing);
  return missing ? path : result;
}

fs::path named_by_the_user(const std::string& given) {
  const auto found = find_libtorch_below(given);
  if (!found) {
    throw UsageError(str("LIBTORCH=", given, " holds no libtorch: looked for lib/", kLibrary, " in ",
                         path_list(libtorch_candidates(given))));
  }
  const std::string version = libtorch_version(*found);
  if (!version.empty() && version != RONDO_LIBTORCH_VERSION) {
    throw UsageError(str("LIBTORCH=", given, " is libtorch ", version, " (", found->string(),
                         "), but rondo was built with " RONDO_LIBTORCH_VERSION
                         "; build rondo again with it, or unset LIBTORCH"));
  }
  return *found;
}

}  // namespace

std::vector<fs::path> libtorch_candidates(const fs::path& given) {
  std::vector<fs::path> candidates = {given, given / "torch", given / "libtorch"};
  std::error_code none;
  for (const auto& python : fs::directory_iterator(given / "lib", none)) {
    const fs::path packages = python.path() / "site-packages";
    if (exists_quietly(packages)) candidates.push_back(packages / "torch");
  }
  return candidates;
}

std::optional<fs::path> find_libtorch_below(const fs::path& given) {
  for (const fs::path& candidate : libtorch_candidates(given)) {
    if (exists_quietly(candidate / "lib" / kLibrary)) return candidate;
  }
  return std::nullopt;
}

std::string libtorch_version(const fs::path& directory) {
  std::map<std::string, std::string> parts;
  for (const char* header :
       {"include/torch/headeronly/version.h", "include/torch/csrc/api/include/torch/version.h"}) {
    std::error_code missing;
    // Opening a named pipe would block.
    if (!fs::is_regular_file(directory / header, missing)) continue;
    std::ifstream file(directory / header);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string directive, name, value;
      words >> directive >> name >> value;
      if (directive == "#define" && !value.empty()) parts[name] = value;
    }
  }
  if (!parts.contains("TORCH_VERSION_MAJOR")) return {};
  return join(
      std::vector{parts["TORCH_VERSION_MAJOR"], parts["TORCH_VERSION_MINOR"], parts["TORCH_VERSION_PATCH"]},
      ".");
}

fs::path locate_libtorch() {
  if (const std::string given = variable("LIBTORCH"); !given.empty()) return named_by_the_user(given);
  fs::path built_with = RONDO_LIBTORCH_DIR;
  if (exists_quietly(built_with / "lib" / kLibrary)) return built_with;
  const std::string search = variable("LD_LIBRARY_PATH");
  for (const std::string& folder : split(search, ':')) {
    if (!folder.empty() && exists_quietly(fs::path(folder) / kLibrary)) return fs::path(folder).parent_path();
  }
  throw Error(str("libtorch was not found. Looked for ", kLibrary, " in ", (built_with / "lib").string(),
                  ", where it was when rondo was built, and in LD_LIBRARY_PATH (",
                  search.empty() ? "not set" : search,
                  "). Where it was moved: set LIBTORCH=/path/to/libtorch (" RONDO_LIBTORCH_VERSION
                  "); for another one build rondo again"));
}

fs::path use_libtorch() {
  fs::path directory = locate_libtorch();
  // With LIBTORCH set, LD_LIBRARY_PATH is set even for the libtorch that rondo was built with: programs of a
  // bundle have no RPATH to it.
  if (variable("LIBTORCH").empty() && real(directory) == real(RONDO_LIBTORCH_DIR)) return directory;
  const std::string folder = (directory / "lib").string();
  const std::string before = variable("LD_LIBRARY_PATH");
  if (before == folder || before.starts_with(folder + ":")) return directory;
  setenv("LD_LIBRARY_PATH", before.empty() ? folder.c_str() : str(folder, ":", before).c_str(), 1);
  return directory;
}

}  // namespace rondo
