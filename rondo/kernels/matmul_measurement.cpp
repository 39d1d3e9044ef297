#include "rondo/kernels/matmul_measurement.h"

#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/machine.h"
#include "rondo/base/output.h"
#include "rondo/base/text.h"

namespace rondo {
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
    throw Error("there is no place for measurements: set RONDO_MATMUL_MEASUREMENTS=/path/to/file");
  std::vector<MatmulMeasurement> all;
  try {
    all = read_matmul_measurements(path);
  } catch (const Error&) {
    // Written over: nobody else can read it either.
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
  std::error_code ignored;  // the write below says what is wrong
  fs::create_directories(path.parent_path(), ignored);
  write_output(path, Json{{"format", kFormat}, {"measurements", entries}}.dump(1) + "\n");
}

}  // namespace rondo
