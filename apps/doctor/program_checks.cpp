#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "apps/common/child_output.h"
#include "apps/common/libtorch_location.h"
#include "checks.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace doctor {
namespace {

namespace fs = std::filesystem;
using rondo::str;

// rondo's programs beside this one, by name.
std::vector<fs::path> siblings() {
  std::vector<fs::path> programs;
  std::error_code none;
  const fs::path folder = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("rondo-") && entry.is_regular_file(none) && access(entry.path().c_str(), X_OK) == 0)
      programs.push_back(entry.path());
  }
  std::sort(programs.begin(), programs.end());
  return programs;
}

// Shared libraries that the dynamic linker does not find for `program`, which it only lists and does not run.
std::vector<std::string> missing_libraries(const fs::path& program) {
  const rondo::ChildOutput listed = rondo::run_child({program.string()}, {{"LD_TRACE_LOADED_OBJECTS", "1"}});
  std::vector<std::string> missing;
  std::istringstream lines(listed.text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t arrow = line.find(" => not found");
    if (arrow != std::string::npos) missing.emplace_back(rondo::trim(line.substr(0, arrow)));
  }
  return missing;
}

}  // namespace

Findings check_programs() {
  std::string fault;
  try {
    rondo::use_libtorch();
  } catch (const rondo::Error& error) {
    fault = error.what();
  }
  const std::vector<fs::path> programs = siblings();
  nlohmann::json missing = nlohmann::json::object();
  std::vector<std::string> texts;
  for (const fs::path& program : programs) {
    const std::vector<std::string> libraries = missing_libraries(program);
    if (libraries.empty()) continue;
    missing[program.filename().string()] = libraries;
    texts.push_back(str(program.filename().string(), " (", rondo::join(libraries, ", "), ")"));
  }
  const nlohmann::json data = {{"count", programs.size()}, {"missing_libraries", missing}};
  if (texts.empty())
    return {{"rondo", "programs", State::ok, str(programs.size(), " find their libraries"), "", data}};
  return {
      {"rondo", "programs", State::broken,
       str("libraries are not found for ", rondo::join(texts, ", "), fault.empty() ? "" : str("; ", fault)),
       "LIBTORCH=/path/to/libtorch where it was moved; else build and install rondo again", data}};
}

}  // namespace doctor
