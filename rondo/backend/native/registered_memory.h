#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "rondo/channel/shared_arena.h"

namespace rondo {

// This process's registered memory: one arena, as there is one CPU allocator. Null when the system allows no
// large sparse shared memory (the reason is logged once); everything then still works, through copies. Any
// thread.
std::shared_ptr<SharedArena> process_arena();

// Makes libtorch take CPU tensors of 64 KiB and more from the process's arena, so that gradients and
// parameters are registered wherever autograd puts them. For the whole process, at most once; rondo::init
// does it for the native engine. Processes forked afterwards share such tensors with their parent instead of
// copying them on write.
void register_cpu_allocations();

// A CPU tensor whose storage peers on this host can read and write in place. Contents unspecified. Falls back
// to ordinary memory when there is no arena.
at::Tensor empty_registered(at::IntArrayRef sizes, at::TensorOptions options = {});

// Whether the tensor's storage is registered.
bool is_registered(const at::Tensor& tensor);

}  // namespace rondo
