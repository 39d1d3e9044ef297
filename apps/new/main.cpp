// `rondo new NAME`: creates a project that trains its own model with this rondo.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <map>

#include "apps/common/command_line.h"
#include "apps/common/libtorch_location.h"
#include "apps/new/template.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"

namespace {

namespace fs = std::filesystem;
using rondo::str;
using rondo::UsageError;

constexpr std::size_t kLongestName = 100;

// Throws UsageError unless CMake accepts the name for projects and programs.
void check_name(const std::string& name) {
  const auto fits = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' || letter == '-';
  };
  if (!name.empty() && name.size() <= kLongestName &&
      std::isalpha(static_cast<unsigned char>(name.front())) != 0 &&
      std::all_of(name.begin(), name.end(), fits))
    return;
  throw UsageError(str("NAME '", rondo::printable(name),
                       "': expected a letter, then letters, digits, '_' and '-', ", kLongestName,
                       " characters at most"));
}

// Returns the installation prefix of this program's rondo.
fs::path installation() {
  fs::path prefix = rondo::installation_prefix();
  if (fs::exists(prefix / "lib" / "cmake" / "rondo" / "rondoConfig.cmake")) return prefix;
  throw UsageError(str("a new project needs an installed rondo, and ", prefix.string(),
                       " is a build: run 'make install PREFIX=/where/you/like', then the rondo from there"));
}

std::string filled(std::string_view text, const std::map<std::string, std::string>& values) {
  std::string result(text);
  for (const auto& [key, value] : values) {
    for (std::size_t at = 0; (at = result.find(key, at)) != std::string::npos; at += value.size())
      result.replace(at, key.size(), value);
  }
  return result;
}

int make_project(const std::string& path) {
  const fs::path folder(path);
  const std::string name = folder.filename();
  check_name(name);
  if (fs::exists(fs::symlink_status(folder)))
    throw UsageError(str(path, " exists already; give another name"));
  const std::map<std::string, std::string> values = {{"@PROJECT@", name},
                                                     {"@RONDO@", installation().string()},
                                                     {"@LIBTORCH@", rondo::locate_libtorch().string()}};
  std::error_code error;
  if (!fs::create_directory(folder, error))
    throw rondo::Error(str("cannot create the folder ", path, ": ", error.message()));
  for (const rondo::TemplateFile& file : rondo::template_files())
    rondo::write_output(folder / file.name, filled(file.text, values));
  std::printf(
      "made %s; now:\n  make -C %s          # builds it\n  make -C %s train    # trains it on two "
      "processes\n",
      path.c_str(), path.c_str(), path.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Creates a folder NAME with a project that trains its own model: net.h, train.cpp, model.cpp, "
      "CMakeLists.txt, Makefile.\nExample: rondo new my_model && make -C my_model train",
      "rondo new");
  std::string name;
  app.add_option("NAME", name, "Name of the folder to create")->required();
  return rondo::run_command_line(app, argc, argv, [&] { return make_project(name); });
}
