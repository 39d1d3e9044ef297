#include "rondo/base/process.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace rondo::module_path_test {
namespace {

namespace fs = std::filesystem;

TEST(ModulePath, AVariableOfTheModulesNameComesFirst) {
  ASSERT_EQ(setenv("RONDO_OF_A_TEST_MODULE", "/nowhere/other.so", 1), 0);
  EXPECT_EQ(find_module("rondo_of_a_test.so"), "/nowhere/other.so");
  ASSERT_EQ(setenv("RONDO_OF_A_TEST_MODULE", "", 1), 0);
  EXPECT_EQ(find_module("rondo_of_a_test.so"), "");
  unsetenv("RONDO_OF_A_TEST_MODULE");
  EXPECT_EQ(find_module("rondo_of_a_test.so"), "");
}

TEST(ModulePath, IsBesideProgramOrInLinkerPath) {
  const fs::path beside = fs::read_symlink("/proc/self/exe").parent_path() / "rondo_module_path_test.so";
  std::ofstream(beside).close();
  EXPECT_EQ(find_module(beside.filename()), beside);
  fs::remove(beside);
  EXPECT_EQ(find_module(beside.filename()), "");
  EXPECT_EQ(fs::path(find_module("libc.so.6")).filename(), "libc.so.6");
}

}  // namespace
}  // namespace rondo::module_path_test
