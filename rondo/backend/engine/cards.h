#pragma once

#include <c10/core/Device.h>

#include <string>

// GPUs and NCCL as this machine, libtorch and this build have them. Programs of rondo link neither: they load
// libtorch's CUDA library, and the module with NCCL, where a device or the engine is asked for.
namespace rondo {

// Why a build lacks NCCL, and what it takes.
inline constexpr const char* kNoNccl =
    "this build of rondo has no NCCL: it needs a libtorch with CUDA, and the headers of CUDA and NCCL "
    "(beside what a CUDA wheel brings nvidia-cuda-crt and nvidia-cuda-cccl, or a CUDA toolkit); "
    "RONDO_NCCL_MODULE names rondo_nccl.so where it is not beside this program or in ../lib";

// Module with the engine nccl.
inline constexpr const char* kNcclModule = "rondo_nccl.so";

// Returns whether the module with NCCL is there. Any thread.
bool have_nccl();

// Returns the number of GPUs that NVIDIA's driver shows this process (CUDA_VISIBLE_DEVICES); 0 where there is
// no driver. Loads the driver, and nothing of libtorch. Any thread.
int driver_card_count();

// Returns whether libtorch is a CUDA build: its CUDA library is loaded, or lies beside the rest of libtorch.
bool is_cuda_build();

// Loads libtorch's CUDA library with its kernels, unless that was done. Must come before the first question
// about CUDA to libtorch (torch::manual_seed asks one), which keeps the answer; init() calls it in time for a
// device. Throws UsageError for a CPU build, and where the library or one that it needs (NCCL, cuDNN, ...)
// cannot be loaded; Error where it comes too late. Any thread.
void load_cuda();

// Names the card behind a device, by its PCI address and host where the driver is there: the same text in
// every process that uses the card.
std::string card_of(c10::Device device);

}  // namespace rondo
