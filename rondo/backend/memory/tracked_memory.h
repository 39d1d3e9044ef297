#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include "rondo/backend/memory/track_allocations.h"
#include "rondo/memory/tracker.h"

namespace rondo {

// Makes `source` where libtorch takes memory for CPU tensors, tracked where memory is tracked. It must live
// for ever, and its raw_deleter() must also take what c10's default CPU allocator handed out.
void install_cpu_allocator(c10::Allocator& source);

// For memory behind tensors that comes past the CPU allocator: tracked where memory is tracked.
void track_block(const void* block, std::uint64_t bytes);
// Takes a block of track_block() off, before its memory is given back.
void untrack_block(const void* block) noexcept;

// Says what the memory behind `tensor` is for, all of it where several tensors are views of one. Tensors that
// are not tracked, and undefined ones, are left alone.
void label_memory(const at::Tensor& tensor, MemoryLabel label);
// The same for the block that begins at `block`.
void label_memory(const void* block, MemoryLabel label);

// From now on the memory behind `tensor` counts as so many bytes here: this rank's part of what ranks share.
void count_part(const at::Tensor& tensor, std::uint64_t bytes);

}  // namespace rondo
