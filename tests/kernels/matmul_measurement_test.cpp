#include "rondo/kernels/matmul_choice.h"

#include <gtest/gtest.h>

#include <fstream>

#include "rondo/base/error.h"
#include "rondo/base/process.h"
#include "tests/temporary_directory.h"

namespace rondo::matmul_measurement_test {
namespace {

MatmulMeasurement measurement(const std::string& library, double fast_gflops, double fast_error = 1e-7) {
  return {machine_name(), library, {100, 1e-7}, {fast_gflops, fast_error}};
}

TEST(MatmulMeasurement, FastMeansFasterAndStillFloat32) {
  EXPECT_TRUE(measurement("a", 106).fast_is_better());
  EXPECT_FALSE(measurement("a", 104).fast_is_better());
  EXPECT_FALSE(measurement("a", 90).fast_is_better());
  EXPECT_TRUE(measurement("a", 220, 1.5e-7).fast_is_better());
  EXPECT_FALSE(measurement("a", 220, 1e-4).fast_is_better());
  EXPECT_DOUBLE_EQ(measurement("a", 220).speedup(), 2.2);
}

TEST(MatmulMeasurement, IsFoundForSameMachineAndLibrary) {
  const TemporaryDirectory directory;
  const auto path = directory / "below" / "matmul.json";
  EXPECT_FALSE(find_matmul_measurement(path, "a"));
  keep_matmul_measurement(path, measurement("a", 150));
  keep_matmul_measurement(path, measurement("b", 90));
  keep_matmul_measurement(path, measurement("a", 160));  // replaces
  MatmulMeasurement elsewhere = measurement("a", 500);
  elsewhere.machine = "another";
  keep_matmul_measurement(path, elsewhere);
  EXPECT_EQ(read_matmul_measurements(path).size(), 3U);
  EXPECT_DOUBLE_EQ(find_matmul_measurement(path, "a")->fast.gflops, 160);
  EXPECT_DOUBLE_EQ(find_matmul_measurement(path, "b")->fast.gflops, 90);
  EXPECT_DOUBLE_EQ(find_matmul_measurement(path, "b")->standard.error, 1e-7);
  EXPECT_FALSE(find_matmul_measurement(path, "c"));
  EXPECT_FALSE(find_matmul_measurement(path, ""));
}

TEST(MatmulMeasurement, ForeignFileIsNamedAndReplaced) {
  const TemporaryDirectory directory;
  const auto path = directory / "matmul.json";
  for (const char* text : {"", "{", "[]", R"({"format": "other"})",
                           R"({"format": "rondo-matmul-1", "measurements": [{"machine": 3}]})",
                           R"({"format": "rondo-matmul-1", "measurements": [{"machine": "m", "library": "l",
                               "default": {"gflops": 0, "error": 1}, "fast": {"gflops": 1, "error": 1}}]})"}) {
    std::ofstream(path) << text;
    try {
      read_matmul_measurements(path);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("rondo doctor"), std::string::npos);
    }
    keep_matmul_measurement(path, measurement("a", 150));
    EXPECT_TRUE(find_matmul_measurement(path, "a"));
  }
  EXPECT_THROW(keep_matmul_measurement("", measurement("a", 150)), Error);
  EXPECT_THROW(keep_matmul_measurement("/proc/nowhere/matmul.json", measurement("a", 150)), Error);
}

TEST(MatmulMeasurement, RebuiltLibraryAtSamePathIsAnother) {
  const TemporaryDirectory directory;
  const auto path = directory / "libtorch_cpu.so";
  EXPECT_EQ(library_identity(path), "");
  std::ofstream(path) << "one";
  const std::string first = library_identity(path);
  EXPECT_NE(first.find("3 bytes"), std::string::npos) << first;
  std::ofstream(path) << "three";
  EXPECT_NE(library_identity(path), first);
}

// This program has no libtorch, so MKL calls nothing.
TEST(MatmulChoice, WithoutMklIsTheDefault) {
  EXPECT_FALSE(matmul_choice().fast);
  EXPECT_FALSE(matmul_choice().why.empty());
  EXPECT_EQ(loaded_libtorch(), "");
}

}  // namespace
}  // namespace rondo::matmul_measurement_test
