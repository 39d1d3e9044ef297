#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "rondo/channel/shared_memory.h"

namespace rondo {

// This process's registered memory: one arena, as there is one CPU allocator. Null when the system allows no
// large sparse shared memory (the reason is logged once); everything then still works, through copies. Any
// thread.
std::shared_ptr<SharedArena> process_arena();

// Makes libtorch take CPU tensors of 64 KiB and more from the process's arena, so that gradients and
// parameters are registered wherever autograd puts them. For the whole process, at most once; rondo::init
// does it for the native engine. Does nothing where the environment says RONDO_REGISTERED_MEMORY=0.
//
// A process forked afterwards (a worker of PyTorch's DataLoader) allocates ordinary memory, and what it
// writes to tensors that it inherited stays its own; it may or may not see what its parent writes later.
void register_cpu_allocations();

// Whether register_cpu_allocations has taken effect in this process.
bool registers_allocations();

// A CPU tensor whose storage peers on this host can read and write in place. Contents unspecified. Falls back
// to ordinary memory when there is no arena.
at::Tensor empty_registered(at::IntArrayRef sizes, at::TensorOptions options = {});

// Whether the tensor's storage is registered.
bool is_registered(const at::Tensor& tensor);

}  // namespace rondo
