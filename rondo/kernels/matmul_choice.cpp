#include "rondo/kernels/matmul_choice.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <string_view>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"

// MKL calls this function of its own to test for an Intel processor, and selects kernels by the answer from
// then on. The call goes through the dynamic linker, so the definition here, which a program that links rondo
// contains and exports, overrides libtorch's. Kernels still check for the instructions that they need.
extern "C" int mkl_serv_intel_cpu_true();

namespace rondo {
namespace {

constexpr const char* kQuestion = "mkl_serv_intel_cpu_true";
using Question = int (*)();

// Returns MKL's own function, or null in a program without MKL.
void* original() { return dlsym(RTLD_NEXT, kQuestion); }

// Returns whether MKL calls the function here. MKL does not in a module that was loaded later, such as a
// Python extension.
bool is_asked() {
  return dlsym(RTLD_DEFAULT, kQuestion) == reinterpret_cast<void*>(&mkl_serv_intel_cpu_true);
}

MatmulChoice decide() {
  const char* const value = std::getenv(kMatmulVariable);
  const std::string setting = value == nullptr || *value == '\0' ? "auto" : value;
  if (setting != "auto" && setting != "libtorch" && setting != "fast") {
    throw UsageError(str(kMatmulVariable, "=", setting, " is not one of auto, libtorch, fast"));
  }
  if (!is_asked()) return {false, "rondo was loaded after libtorch, so MKL does not use its setting"};
  void* const mkl = original();
  if (mkl == nullptr) return {false, "this libtorch does not use MKL"};
  if (reinterpret_cast<Question>(mkl)() != 0)
    return {false, "MKL already uses its fast kernels on this processor"};
  if (setting != "auto") return {setting == "fast", str(kMatmulVariable, "=", setting)};
  try {
    const auto measured =
        find_matmul_measurement(matmul_measurements_path(), library_identity(loaded_libtorch()));
    if (!measured)
      return {false, "not measured on this machine with this libtorch; run rondo doctor to measure them"};
    return {measured->fast_is_better(),
            str("the fast ones were measured at ", measured->speedup(), " x the default's speed")};
  } catch (const std::exception& error) {
    return {false, error.what()};  // training continues without it
  }
}

// Returns the answer to MKL without throwing; matmul_choice() reports errors.
int answer() noexcept {
  void* const mkl = original();
  const int own = mkl == nullptr ? 0 : reinterpret_cast<Question>(mkl)();
  try {
    return own != 0 || matmul_choice().fast ? 1 : 0;
  } catch (const std::exception&) {
    return own;
  }
}

}  // namespace

std::string loaded_libtorch() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t, void* found) {
        const std::string_view name = library->dlpi_name;
        if (!name.ends_with("/libtorch_cpu.so")) return 0;
        *static_cast<std::string*>(found) = name;
        return 1;
      },
      &path);
  return path;
}

void set_matmul(const std::string& setting) {
  if (setting != "auto") setenv(kMatmulVariable, setting.c_str(), /*overwrite=*/1);
}

const MatmulChoice& matmul_choice() {
  static const MatmulChoice choice = decide();
  return choice;
}

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
constexpr const char* kFormat = "rondo-matmul-1";

Json to_json(const MatmulFigures& figures) { return {{"gflops", figures.gflops}, {"error", figures.error}}; }

MatmulFigures parse_figures(const Json& json) {
  const MatmulFigures figures{json_number(json.at("gflops"), "\"gflops\""),
                              json_number(json.at("error"), "\"error\"")};
  if (!(figures.gflops > 0) || !(figures.error > 0)) throw Error("gflops and error must be above 0");
  return figures;
}

}  // namespace

std::string library_identity(const fs::path& library) {
  std::error_code missing;
  const fs::path real = fs::canonical(library, missing);
  struct stat status {};
  if (missing || stat(real.c_str(), &status) != 0) return {};
  return str(real.string(), ", ", status.st_size, " bytes, ", status.st_mtim.tv_sec);
}

fs::path matmul_measurements_path() { return measurement_path("RONDO_MATMUL_MEASUREMENTS", "matmul.json"); }

std::vector<MatmulMeasurement> read_matmul_measurements(const fs::path& path) {
  std::vector<MatmulMeasurement> measurements;
  if (path.empty() || !fs::exists(path)) return measurements;
  try {
    const Json json = read_json_file(path);
    if (json.at("format") != kFormat) throw Error(str("is not of format ", kFormat));
    for (const Json& entry : json_list(json.at("measurements"), "\"measurements\"")) {
      measurements.push_back({json_text(entry.at("machine"), "\"machine\""),
                              json_text(entry.at("library"), "\"library\""),
                              parse_figures(entry.at("default")), parse_figures(entry.at("fast"))});
    }
  } catch (const std::exception& e) {
    throw Error(str(path.string(), " holds no measurements of matrix products: ", json_problem(e),
                    ". Remove it and measure again with rondo doctor."));
  }
  return measurements;
}

std::optional<MatmulMeasurement> find_matmul_measurement(const fs::path& path, const std::string& library) {
  if (library.empty()) return {};
  const std::vector<MatmulMeasurement> all = read_matmul_measurements(path);
  if (all.empty()) return {};
  const std::string machine = machine_name();
  for (const MatmulMeasurement& measurement : all) {
    if (measurement.machine == machine && measurement.library == library) return measurement;
  }
  return {};
}

void keep_matmul_measurement(const fs::path& path, const MatmulMeasurement& measurement) {
  if (path.empty())
    throw Error("there is no folder for measurements: set RONDO_MATMUL_MEASUREMENTS=/path/to/file");
  std::vector<MatmulMeasurement> all;
  try {
    all = read_matmul_measurements(path);
  } catch (const Error&) {
    // Overwrites a damaged file, which no reader could parse.
  }
  std::erase_if(all, [&](const MatmulMeasurement& old) {
    return old.machine == measurement.machine && old.library == measurement.library;
  });
  all.push_back(measurement);
  Json entries = Json::array();
  for (const MatmulMeasurement& entry : all) {
    entries.push_back({{"machine", entry.machine},
                       {"library", entry.library},
                       {"default", to_json(entry.standard)},
                       {"fast", to_json(entry.fast)}});
  }
  std::error_code ignored;  // the write below reports the error
  fs::create_directories(path.parent_path(), ignored);
  write_output(path, Json{{"format", kFormat}, {"measurements", entries}}.dump(1) + "\n");
}

}  // namespace rondo

int mkl_serv_intel_cpu_true() {
  static const int answer = rondo::answer();
  return answer;
}
