#include "apps/common/matmul_setup.h"

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>

#include "apps/common/child_output.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/kernels/matmul_choice.h"
#include "rondo/kernels/matmul_measurement.h"

namespace rondo {

namespace fs = std::filesystem;

bool matmul_has_a_choice() {
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);) {
    if (line.starts_with("vendor_id")) return line.find("GenuineIntel") == std::string::npos;
  }
  return false;
}

void measure_matmul() {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "rondo-matmul";
  const ChildOutput output = run_child({program.string()});
  if (output.exit_code != 0) throw Error(str(program.string(), " ended with exit code ", output.exit_code));
}

void prepare_matmul(const std::string& setting) {
  if (setting != "auto") {
    setenv(kMatmulVariable, setting.c_str(), /*overwrite=*/1);
    return;
  }
  const char* const user = std::getenv(kMatmulVariable);
  const fs::path libtorch = fs::path(RONDO_LIBTORCH_DIR) / "lib" / "libtorch_cpu.so";
  if ((user != nullptr && std::string_view(user) != "auto") || !matmul_has_a_choice()) return;
  try {
    if (find_matmul_measurement(matmul_measurements_path(), library_identity(libtorch))) return;
    measure_matmul();
  } catch (const std::exception& error) {
    log::warning("matrix products use the default kernels, faster ones could not be looked for: ",
                 error.what());
  }
}

}  // namespace rondo
