#pragma once

namespace rondo {

// Tracks every CPU tensor that this process allocates from now on, in the tracker of the allocating thread's
// replica: with the requested size, under that thread's label (rondo/memory/scope.h). An allocation beyond
// the tracker's limit throws MemoryLimitError. Affects the whole process and cannot be undone; existing
// tensors are not tracked. `rondo train` calls it before anything else. Any thread.
void track_cpu_allocations();
// Returns whether track_cpu_allocations() was called.
bool tracks_cpu_allocations();

}  // namespace rondo
