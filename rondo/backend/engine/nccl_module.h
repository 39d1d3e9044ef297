#pragma once

#include <compare>
#include <string>

#include "rondo/base/process.h"
#include "rondo/base/text.h"

namespace rondo {

// The module with the engine nccl. Free of libtorch.

// File name of the module.
inline constexpr const char* kNcclModule = "rondo_nccl.so";

// Why a build lacks NCCL, and what it takes.
inline constexpr const char* kNoNccl =
    "this build of rondo has no NCCL: it needs a libtorch with CUDA, and the headers of CUDA and NCCL "
    "(beside what a CUDA wheel brings nvidia-cuda-crt and nvidia-cuda-cccl, or a CUDA toolkit); "
    "RONDO_NCCL_MODULE names rondo_nccl.so where it is not beside this program or in ../lib";

// Returns whether the module is there. Any thread.
inline bool have_nccl() { return !find_module(kNcclModule).empty(); }

struct NcclVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;

  auto operator<=>(const NcclVersion&) const = default;
  std::string text() const { return str(major, ".", minor, ".", patch); }
};

// Reads a version as NCCL counts from 2.9 on: 22809 is 2.28.9.
constexpr NcclVersion nccl_version_of(int code) { return {code / 10000, code / 100 % 100, code % 100}; }

// Says why versions of NCCL do not go together: `module`, whose headers rondo's module was compiled with,
// `libtorch`, whose headers libtorch was compiled with, and `library`, which was loaded. Structures change
// between minor versions, so the first two must agree in these; a library serves programs of all earlier
// versions with its own major number. Empty: they go together.
inline std::string nccl_mismatch(const NcclVersion& module, const NcclVersion& libtorch,
                                 const NcclVersion& library) {
  const std::string install = str("install nvidia-nccl-cu13==", libtorch.text(), " of PyPI");
  if (module.major != libtorch.major || module.minor != libtorch.minor)
    return str("rondo was compiled with the headers of NCCL ", module.text(), ", and libtorch with those of ",
               libtorch.text(), "; ", install, " and build rondo again");
  if (library.major != libtorch.major || library < libtorch)
    return str("the NCCL library here is ", library.text(), ", and libtorch was compiled with ",
               libtorch.text(), "; ", install);
  return {};
}

}  // namespace rondo
