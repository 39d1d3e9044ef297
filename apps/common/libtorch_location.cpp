#include "apps/common/libtorch_location.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "apps/common/child_output.h"
#include "rondo/base/error.h"
#include "rondo/base/library_folders.h"
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

// Returns the minor version: "2.13" for "2.13.1".
std::string minor_version(const std::string& version) { return version.substr(0, version.rfind('.')); }

const std::string kWanted = minor_version(RONDO_LIBTORCH_VERSION);

std::string how_to_get_it() {
  return str("pip install 'torch==", kWanted, ".*', or set LIBTORCH=/path/to/libtorch (", kWanted, ")");
}

// Throws UsageError, naming both versions, if `directory` has a libtorch of another version.
fs::path checked(const fs::path& directory, const std::string& source) {
  const std::string version = libtorch_version(directory);
  if (is_libtorch_suitable(version)) return directory;
  throw UsageError(str(source, " is libtorch ", version, " (", directory.string(),
                       "), but rondo was built with " RONDO_LIBTORCH_VERSION "; ", how_to_get_it(),
                       ", or install the rondo that was built with libtorch ", minor_version(version)));
}

fs::path named_by_the_user(const std::string& given) {
  const auto found = find_libtorch_below(given);
  if (!found) {
    throw UsageError(str("LIBTORCH=", given, " holds no libtorch: looked for lib/", kLibrary, " in ",
                         path_list(libtorch_candidates(given))));
  }
  return checked(*found, "LIBTORCH=" + given);
}

// Returns the libtorch that the dynamic linker finds for child programs, which have this program's run path.
fs::path found_by_linker() {
  for (const fs::path& folder : library_folders()) {
    if (exists_quietly(folder / kLibrary)) return real(folder).parent_path();
  }
  return {};
}

// Returns the Python of the environment that this program is installed in, else the active one.
std::string active_python() {
  std::vector<fs::path> folders;
  const fs::path packages = installation_prefix().parent_path();
  if (packages.filename() == "site-packages") folders.push_back(packages / "../../../bin");
  if (const std::string active = variable("VIRTUAL_ENV"); !active.empty())
    folders.push_back(fs::path(active) / "bin");
  for (const std::string& folder : split(variable("PATH"), ':')) folders.emplace_back(folder);
  for (const fs::path& folder : folders) {
    if (fs::path python = folder / "python3"; exists_quietly(python)) return python.lexically_normal();
  }
  return {};
}

// Returns the folder of the torch package that this Python would import, without importing it; empty if there
// is none.
fs::path torch_of(const std::string& python) {
  if (python.empty()) return {};
  try {
    // Python must not import from the folder in which this program was started.
    const ChildOutput answer = run_child({python, "-c",
                                          "import sys; sys.path = [p for p in sys.path if p]; import "
                                          "importlib.util as u; s = u.find_spec('torch'); "
                                          "print(s.submodule_search_locations[0] if s else '')"});
    const std::string folder(trim(answer.text));
    if (answer.exit_code == 0 && !folder.empty() && exists_quietly(fs::path(folder) / "lib" / kLibrary))
      return folder;
  } catch (const Error&) {  // the interpreter cannot be started
  }
  return {};
}

// Returns the folders that are searched for libtorch and that the dynamic linker also searches, with links
// resolved.
std::string folders_looked_in() {
  std::vector<std::string> texts;
  for (const fs::path& folder : library_folders()) {
    const std::string holder = folder.parent_path().filename();
    if (holder != "libtorch" && holder != "torch") continue;
    std::error_code is_none;
    const fs::path target = fs::read_symlink(folder.parent_path(), is_none);
    texts.push_back(is_none ? folder.lexically_normal().string()
                            : str((target / "lib").string(), " (by ",
                                  folder.parent_path().lexically_normal().string(), ")"));
  }
  return join(texts, ", ");
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

fs::path installation_prefix() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none).parent_path().parent_path();
}

bool is_libtorch_suitable(const std::string& version) {
  return version.empty() || minor_version(version) == kWanted;
}

fs::path locate_libtorch() {
  if (const std::string given = variable("LIBTORCH"); !given.empty()) return named_by_the_user(given);
  if (const fs::path found = found_by_linker(); !found.empty()) return checked(found, found.string());
  const std::string python = active_python();
  if (const fs::path found = torch_of(python); !found.empty())
    return checked(found, "the torch of " + python);
  const std::string search = variable("LD_LIBRARY_PATH");
  throw Error(str("libtorch was not found. Looked for ", kLibrary, " in ", folders_looked_in(),
                  ", in LD_LIBRARY_PATH (", search.empty() ? "not set" : search, ") and for torch in ",
                  python.empty() ? "python3, which is not in PATH" : python, ". Get it: ", how_to_get_it()));
}

fs::path use_libtorch() {
  fs::path directory = locate_libtorch();
  if (variable("LIBTORCH").empty() && directory == found_by_linker()) return directory;
  const std::string folder = (directory / "lib").string();
  const std::string before = variable("LD_LIBRARY_PATH");
  if (before == folder || before.starts_with(folder + ":")) return directory;
  setenv("LD_LIBRARY_PATH", before.empty() ? folder.c_str() : str(folder, ":", before).c_str(), 1);
  return directory;
}

}  // namespace rondo
