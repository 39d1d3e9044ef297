#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "rondo/channel/shared_memory.h"

namespace rondo {

// Returns this process's registered memory: one arena, as there is one CPU allocator. Returns null if the
// system allows no large sparse shared memory (the reason is logged once); all operations then copy. Any
// thread.
std::shared_ptr<SharedArena> process_arena();

// Makes libtorch allocate CPU tensors of 64 KiB and more in the process's arena, so that gradients and
// parameters are registered wherever autograd allocates them. Affects the whole process and takes effect
// once; rondo::init calls it for the native engine. Does nothing if RONDO_REGISTERED_MEMORY=0 is set.
//
// A process forked afterwards (a worker of PyTorch's DataLoader) allocates ordinary memory. The child's
// writes to inherited tensors stay private; it may or may not see later writes of the parent.
void register_cpu_allocations();

// Returns whether register_cpu_allocations has taken effect in this process.
bool registers_allocations();

// Returns a CPU tensor that peers on this host can read and write in place. The contents are unspecified.
// Falls back to ordinary memory if there is no arena.
at::Tensor empty_registered(at::IntArrayRef sizes, at::TensorOptions options = {});

// Returns whether the tensor's storage is registered.
bool is_registered(const at::Tensor& tensor);

}  // namespace rondo
