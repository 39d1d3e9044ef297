#pragma once

#include <string>

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

}  // namespace rondo
