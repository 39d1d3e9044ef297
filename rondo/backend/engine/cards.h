#pragma once

#include <c10/core/Device.h>

#include <string>

// GPUs and NCCL as this build has them; nccl/ implements it.
namespace rondo {

// Why a build lacks NCCL, and what it takes.
inline constexpr const char* kNoNccl =
    "this build of rondo has no NCCL: it needs a libtorch with CUDA, and the headers of CUDA and NCCL "
    "(beside "
    "what a CUDA wheel brings nvidia-cuda-crt and nvidia-cuda-cccl, or a CUDA toolkit)";

// Whether this build has NCCL.
bool have_nccl();

// The PCI address of a CUDA device with the host's name: the same text in every process that uses the card.
std::string card_of(c10::Device device);

}  // namespace rondo
