#pragma once

#include <c10/core/Device.h>

#include <string>

// GPUs as this machine and libtorch have them. Programs of rondo do not link libtorch's CUDA library: they
// load it where a device is asked for.
namespace rondo {

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
