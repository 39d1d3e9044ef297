#pragma once

#include <compare>
#include <string>

#include "rondo/base/process.h"
#include "rondo/base/text.h"

namespace rondo {

// Location and versions of the module with the engine nccl. Free of libtorch.

// File name of the module.
inline constexpr const char* kNcclModule = "rondo_nccl.so";

// Error message of a build without NCCL: the reason and the requirements.
inline constexpr const char* kNoNccl =
    "this build of rondo has no NCCL: it needs a libtorch with CUDA, and the headers of CUDA and NCCL (a "
    "CUDA wheel of torch with nvidia-cuda-crt and nvidia-cuda-cccl, or a CUDA toolkit). If rondo_nccl.so is "
    "neither beside this program nor in ../lib, set RONDO_NCCL_MODULE to its path";

// Returns whether the module was found. Any thread.
inline bool have_nccl() { return !find_module(kNcclModule).empty(); }

struct NcclVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;

  auto operator<=>(const NcclVersion&) const = default;
  std::string text() const { return str(major, ".", minor, ".", patch); }
};

// Decodes a version in NCCL's numbering since 2.9: 22809 is 2.28.9.
constexpr NcclVersion nccl_version_of(int code) { return {code / 10000, code / 100 % 100, code % 100}; }

// Returns the reason why versions of NCCL are incompatible, or an empty string. `module` and `libtorch` are
// the versions of the headers that rondo's module and libtorch were compiled with; `library` was loaded.
// Structures change between minor versions, so `module` and `libtorch` must agree in the major and minor
// version; a library is compatible with programs of all earlier versions of its own major version.
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
