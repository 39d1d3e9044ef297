#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rondo {

// Which kernels of MKL multiply float32 matrices in this process: those it picks by itself, or those it
// keeps for Intel's processors, which on others may be faster. Either way float32, for every model, forward
// and backward: below libtorch's operations.
struct MatmulChoice {
  bool fast = false;
  std::string why;  // for people
};

// The variable that says what to do: "auto" (the default: fast where this machine was measured to be faster
// so), "libtorch" (MKL's own pick), "fast".
inline constexpr const char* kMatmulVariable = "RONDO_MATMUL";

// What `--matmul SETTING` does in a process and those that it starts: anything but "auto" replaces what
// kMatmulVariable says. Before matmul_choice(), while no other thread reads the environment.
void set_matmul(const std::string& setting);

// Made once, at the first call or at MKL's first product, whichever is first; never changes afterwards. Takes
// well under a millisecond: nothing is measured here (see `rondo doctor`). Any thread. Throws UsageError when
// RONDO_MATMUL has another value.
const MatmulChoice& matmul_choice();

// Path of the libtorch_cpu.so of this process; empty without one.
std::string loaded_libtorch();

// How fast and how exact a product of two float32 matrices was with one choice of kernels.
struct MatmulFigures {
  double gflops = 0;  // of one core, geometric mean over the shapes measured
  double error = 0;   // root mean square of the difference to float64, relative to the result's
};

// What a machine was measured to do with one library of matrix products.
struct MatmulMeasurement {
  std::string machine;  // machine_name()
  std::string library;  // library_identity()
  MatmulFigures standard;
  MatmulFigures fast;

  double speedup() const { return fast.gflops / standard.gflops; }
  // By 5 % at least, in float32: blocks may be summed in another order, which moves the error by a fraction;
  // products of a low-precision dtype would have a hundred times the error and are refused.
  bool fast_is_better() const { return speedup() >= 1.05 && fast.error <= 2 * standard.error; }
};

// "path, bytes, time of change" of the file: another build at the same path is another library. Empty when
// there is no such file.
std::string library_identity(const std::filesystem::path& library);

// $RONDO_MATMUL_MEASUREMENTS, else rondo/matmul.json in $XDG_CACHE_HOME or ~/.cache; empty without any.
std::filesystem::path matmul_measurements_path();

// All that are kept. No file is no measurement; throws Error naming the file when it is not what rondo wrote.
std::vector<MatmulMeasurement> read_matmul_measurements(const std::filesystem::path& path);
// That of this machine with this library, if there is one.
std::optional<MatmulMeasurement> find_matmul_measurement(const std::filesystem::path& path,
                                                         const std::string& library);
// Adds or replaces one; readers see the old file or the new one. Throws Error naming the file.
void keep_matmul_measurement(const std::filesystem::path& path, const MatmulMeasurement& measurement);

}  // namespace rondo
