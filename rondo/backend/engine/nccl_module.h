#pragma once

#include "rondo/base/module_path.h"

// The module with the engine nccl. Free of libtorch.
namespace rondo {

// File name of the module.
inline constexpr const char* kNcclModule = "rondo_nccl.so";

// Why a build lacks NCCL, and what it takes.
inline constexpr const char* kNoNccl =
    "this build of rondo has no NCCL: it needs a libtorch with CUDA, and the headers of CUDA and NCCL "
    "(beside what a CUDA wheel brings nvidia-cuda-crt and nvidia-cuda-cccl, or a CUDA toolkit); "
    "RONDO_NCCL_MODULE names rondo_nccl.so where it is not beside this program or in ../lib";

// Returns whether the module is there. Any thread.
inline bool have_nccl() { return !find_module(kNcclModule).empty(); }

}  // namespace rondo
