#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>

#include "apps/common/libtorch_location.h"
#include "apps/common/matmul_setup.h"
#include "checks.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/kernels/matmul_choice.h"

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
  const bool fast = set == "fast" || (set != "default" && measured.fast_is_better());
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
          set == "fast" || set == "default" ? str(" (", rondo::kMatmulVariable, "=", set, ")") : ""),
      "", data);
}

}  // namespace

Findings check_matmul(const Findings& libtorch) {
  const nlohmann::json& torch = libtorch.front().data;
  const nlohmann::json by_default = {{"kernels", "default"}};
  if (!torch.value("loads", false)) return {};
  if (!rondo::matmul_has_a_choice())
    return {
        finding(State::ok, "the library picks its fast kernels by itself on this processor", "", by_default)};
  const fs::path directory = torch.value("directory", "");
  const std::string library = rondo::library_identity(directory / "lib" / "libtorch_cpu.so");
  const fs::path kept = rondo::matmul_measurements_path();
  const char* const get = "rondo doctor, with a HOME or RONDO_MATMUL_MEASUREMENTS=FILE that can be written";
  try {
    auto measured = rondo::find_matmul_measurement(kept, library);
    if (!measured && library == rondo::library_identity(rondo::locate_libtorch() / "lib/libtorch_cpu.so")) {
      if (!rondo::find_place_for_matmul())
        throw rondo::Error(str("nothing can be written to ", kept.empty() ? "any place" : kept.string()));
      rondo::measure_matmul();
      measured = rondo::find_matmul_measurement(kept, library);
    }
    if (measured) return {describe(*measured)};
    return {finding(State::ok, "default kernels: not measured with this libtorch", "", by_default)};
  } catch (const std::exception& error) {
    return {finding(State::warning,
                    str("default kernels, faster ones could not be looked for: ", error.what()), get,
                    by_default)};
  }
}

}  // namespace doctor
