#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rondo {

// The kernels of MKL that multiply float32 matrices in this process: MKL's own choice, or its kernels for
// Intel processors, which may be faster on others. In both cases the dtype is float32. Applies to every
// model, forward and backward, below libtorch's operations.
struct MatmulChoice {
  bool fast = false;
  std::string why;  // reason, for users
};

// Environment variable of the choice: "auto" (the default: fast if it was measured to be faster on this
// machine), "libtorch" (MKL's own choice), "fast".
inline constexpr const char* kMatmulVariable = "RONDO_MATMUL";

// Applies `--matmul SETTING` to this process and its children: anything but "auto" replaces kMatmulVariable.
// Call it before matmul_choice(), while no other thread reads the environment.
void set_matmul(const std::string& setting);

// Returns the choice, which is made once, at the first call or at MKL's first product, and never changes.
// Takes well under a millisecond: it does not measure (see `rondo doctor`). Any thread. Throws UsageError for
// an invalid RONDO_MATMUL.
const MatmulChoice& matmul_choice();

// Returns the path of this process's libtorch_cpu.so; empty without one.
std::string loaded_libtorch();

// Speed and error of a product of two float32 matrices with one choice of kernels.
struct MatmulFigures {
  double gflops = 0;  // on one core, geometric mean over the measured shapes
  double error = 0;   // root mean square of the difference to float64, relative to the result's
};

// Measurement of a machine with one library of matrix products.
struct MatmulMeasurement {
  std::string machine;  // machine_name()
  std::string library;  // library_identity()
  MatmulFigures standard;
  MatmulFigures fast;

  double speedup() const { return fast.gflops / standard.gflops; }
  // Returns whether the fast kernels gain at least 5 % with the precision of float32. Another order of block
  // sums changes the error by a fraction; products of a low-precision dtype would have a hundred times the
  // error and are refused.
  bool fast_is_better() const { return speedup() >= 1.05 && fast.error <= 2 * standard.error; }
};

// Returns "path, bytes, modification time" of the file: another build at the same path is another library.
// Empty if there is no such file.
std::string library_identity(const std::filesystem::path& library);

// Returns $RONDO_MATMUL_MEASUREMENTS, else rondo/matmul.json in $XDG_CACHE_HOME or ~/.cache; empty without
// any.
std::filesystem::path matmul_measurements_path();

// Reads all measurements; none if there is no file. Throws Error naming the file if its contents are invalid.
std::vector<MatmulMeasurement> read_matmul_measurements(const std::filesystem::path& path);
// Returns the measurement of this machine with this library, if there is one.
std::optional<MatmulMeasurement> find_matmul_measurement(const std::filesystem::path& path,
                                                         const std::string& library);
// Adds or replaces a measurement; readers see the old file or the new one. Throws Error naming the file.
void keep_matmul_measurement(const std::filesystem::path& path, const MatmulMeasurement& measurement);

}  // namespace rondo
