#include "rondo/kernels/matmul_choice.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <exception>
#include <string_view>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/kernels/matmul_measurement.h"

// MKL asks this function of its own whether it runs on an Intel processor, and from then on picks kernels by
// that. The call goes through the dynamic linker, so the one here, which a program that links rondo carries
// and exports, is asked instead of libtorch's. Kernels still look for the instructions they need by
// themselves.
extern "C" int mkl_serv_intel_cpu_true();

namespace rondo {
namespace {

constexpr const char* kQuestion = "mkl_serv_intel_cpu_true";
using Question = int (*)();

// MKL's own, or null in a program without MKL.
void* original() { return dlsym(RTLD_NEXT, kQuestion); }

// In a module that was loaded later, such as a plug-in of Python's, MKL does not ask ours.
bool is_asked() {
  return dlsym(RTLD_DEFAULT, kQuestion) == reinterpret_cast<void*>(&mkl_serv_intel_cpu_true);
}

MatmulChoice decide() {
  const char* const value = std::getenv(kMatmulVariable);
  const std::string setting = value == nullptr || *value == '\0' ? "auto" : value;
  if (setting != "auto" && setting != "libtorch" && setting != "fast") {
    throw UsageError(str(kMatmulVariable, "=", setting, " is not one of auto, libtorch, fast"));
  }
  if (!is_asked()) return {false, "MKL does not ask rondo, which was loaded after libtorch"};
  void* const mkl = original();
  if (mkl == nullptr) return {false, "this libtorch multiplies matrices without MKL"};
  if (reinterpret_cast<Question>(mkl)() != 0)
    return {false, "on this processor MKL picks its fast kernels by itself"};
  if (setting != "auto") return {setting == "fast", str(kMatmulVariable, "=", setting)};
  try {
    const auto measured =
        find_matmul_measurement(matmul_measurements_path(), library_identity(loaded_libtorch()));
    if (!measured) return {false, "not measured on this machine with this libtorch; rondo doctor measures"};
    return {measured->fast_is_better(),
            str("the fast ones were measured at ", measured->speedup(), " x the default's speed")};
  } catch (const std::exception& error) {
    return {false, error.what()};  // no reason not to train
  }
}

// What MKL is told must not throw; matmul_choice() says what is wrong.
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

}  // namespace rondo

int mkl_serv_intel_cpu_true() {
  static const int answer = rondo::answer();
  return answer;
}
