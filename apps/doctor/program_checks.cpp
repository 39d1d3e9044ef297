#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <sstream>
#include <variant>

#include "apps/common/child_output.h"
#include "apps/common/libtorch_location.h"
#include "apps/common/matmul_setup.h"
#include "checks.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/kernels/matmul_choice.h"
#include "rondo/launch/host_resources.h"

namespace doctor {
namespace {

namespace fs = std::filesystem;
using rondo::str;

// Returns rondo's programs beside this one, by name.
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

// Returns the shared libraries that the dynamic linker does not find for `program`. It only lists them and
// does not run the program.
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
       "set LIBTORCH=/path/to/libtorch if it was moved; otherwise build and install rondo again", data}};
}

}  // namespace doctor

namespace doctor {
namespace {

namespace fs = std::filesystem;
using rondo::str;

constexpr const char* kGetLibtorch =
    "pip install torch of the version that rondo was built with, or set LIBTORCH=/path/to/libtorch; in the "
    "sources: make setup, then build again (any libtorch >= 2.11)";

// Returns an empty text if libtorch can be loaded, else the error.
std::string load_error(const fs::path& directory) {
  const std::string path = directory / "lib" / "libtorch_cpu.so";
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  // Not closed: libtorch starts threads that do not survive dlclose.
  return {};
}

// Returns the libtorch in `directory`, or the one that programs load if `directory` is empty. If there is
// none, returns the reason.
std::variant<fs::path, std::string> look_for_libtorch(const std::string& directory) {
  if (!directory.empty()) {
    if (auto found = rondo::find_libtorch_below(directory)) return *found;
    return str("not found in ", directory);
  }
  try {
    return rondo::locate_libtorch();
  } catch (const rondo::Error& error) {
    return std::string(error.what());
  }
}

Findings not_found(const std::string& directory, const std::string& why) {
  return {{"libtorch",
           "libtorch",
           State::broken,
           why,
           kGetLibtorch,
           {{"found", false}, {"directory", directory}}}};
}

}  // namespace

Findings check_libtorch(const std::string& directory) {
  const auto sought = look_for_libtorch(directory);
  if (const std::string* why = std::get_if<std::string>(&sought)) return not_found(directory, *why);
  const fs::path* const found = std::get_if<fs::path>(&sought);
  const std::string known = rondo::libtorch_version(*found);
  const std::string version = known.empty() ? "unknown" : known;
  const bool cuda = fs::exists(*found / "lib" / "libtorch_cuda.so");
  const std::string error = load_error(*found);
  nlohmann::json data = {{"found", true},          {"directory", found->string()},
                         {"version", version},     {"cuda", cuda},
                         {"loads", error.empty()}, {"built_with", RONDO_LIBTORCH_VERSION}};
  Findings findings;
  const std::string what = str(version, cuda ? ", CUDA build" : ", CPU build", ", ", found->string());
  if (!error.empty()) {
    findings.push_back({"libtorch", "libtorch", State::broken, str(what, "; it cannot be loaded: ", error),
                        kGetLibtorch, data});
  } else if (!rondo::is_libtorch_suitable(known)) {
    findings.push_back({"libtorch", "libtorch", State::warning,
                        str(what, "; rondo was built with " RONDO_LIBTORCH_VERSION),
                        "build rondo again with this libtorch", data});
  } else {
    findings.push_back({"libtorch", "libtorch", State::ok, what, "", data});
  }
  const int gpus = rondo::launch::gpu_count();
  if (gpus > 0 && !cuda) {
    findings.push_back(
        {"libtorch", "CUDA", State::missing, str(gpus, " GPU(s), but this libtorch has no CUDA"),
         "LIBTORCH=/path/to/a/CUDA/build make build   (a CUDA wheel of torch will do)", nullptr});
  }
  return findings;
}

}  // namespace doctor

namespace doctor {
namespace {

namespace fs = std::filesystem;
using rondo::MatmulMeasurement;
using rondo::str;

Finding finding(State state, const std::string& detail, const std::string& get, nlohmann::json data) {
  return {"libtorch", "matrix products", state, detail, get, std::move(data)};
}

std::string rounded(double value, const char* format) {
  char text[32];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

Finding describe(const MatmulMeasurement& measured) {
  const char* const setting = std::getenv(rondo::kMatmulVariable);
  const std::string set = setting == nullptr ? "" : setting;
  const bool fast = set == "fast" || (set != "libtorch" && measured.fast_is_better());
  const nlohmann::json data = {{"kernels", fast ? "fast" : "default"},
                               {"default_gflops", measured.standard.gflops},
                               {"fast_gflops", measured.fast.gflops},
                               {"default_error", measured.standard.error},
                               {"fast_error", measured.fast.error}};
  return finding(
      State::ok,
      str("float32, one core: default kernels ", rounded(measured.standard.gflops, "%.0f"),
          " GFLOP/s, fast ones ", rounded(measured.fast.gflops, "%.0f"), " (",
          rounded(measured.speedup(), "%.2f"), " x); rondo uses the ", fast ? "fast" : "default", " ones",
          set == "fast" || set == "libtorch" ? str(" (", rondo::kMatmulVariable, "=", set, ")") : ""),
      "", data);
}

}  // namespace

Findings check_matmul(const Findings& libtorch) {
  const nlohmann::json& torch = libtorch.front().data;
  const nlohmann::json by_default = {{"kernels", "default"}};
  if (!torch.value("loads", false)) return {};
  if (!rondo::matmul_has_a_choice())
    return {finding(State::ok, "libtorch already uses its fast kernels on this processor", "", by_default)};
  const fs::path directory = torch.value("directory", "");
  const std::string library = rondo::library_identity(directory / "lib" / "libtorch_cpu.so");
  const fs::path kept = rondo::matmul_measurements_path();
  const char* const get = "rondo doctor, with a writable HOME or RONDO_MATMUL_MEASUREMENTS=FILE";
  try {
    auto measured = rondo::find_matmul_measurement(kept, library);
    if (!measured && library == rondo::library_identity(rondo::locate_libtorch() / "lib/libtorch_cpu.so")) {
      if (!rondo::find_place_for_matmul())
        throw rondo::Error(str("cannot write to ", kept.empty() ? "any place" : kept.string()));
      rondo::measure_matmul();
      measured = rondo::find_matmul_measurement(kept, library);
    }
    if (measured) return {describe(*measured)};
    return {finding(State::ok, "default kernels: not measured with this libtorch", "", by_default)};
  } catch (const std::exception& error) {
    return {finding(State::warning, str("default kernels; faster ones could not be measured: ", error.what()),
                    get, by_default)};
  }
}

}  // namespace doctor
