#pragma once

#include <c10/core/Device.h>

#include <string>

// GPUs of this machine and of libtorch. Programs of rondo do not link libtorch's CUDA library: they load it
// on demand.
namespace rondo {

// Returns the number of GPUs that NVIDIA's driver shows this process (CUDA_VISIBLE_DEVICES); 0 without a
// driver. Loads the driver, and nothing of libtorch. Any thread.
int driver_card_count();

// Returns whether libtorch is a CUDA build: its CUDA library is loaded, or is beside libtorch's other
// libraries.
bool is_cuda_build();

// Loads libtorch's CUDA library with its kernels, once. Must precede libtorch's first query about CUDA
// (torch::manual_seed makes one), because libtorch caches the answer; init() calls it in time for a device.
// Throws UsageError for a CPU build, and if the library or a dependency (NCCL, cuDNN, ...) cannot be loaded;
// Error if the call comes too late. Any thread.
void load_cuda();

// Returns the name of the card of a device, with its PCI address and host if the driver is present: the same
// text in every process that uses the card.
std::string card_of(c10::Device device);

}  // namespace rondo
