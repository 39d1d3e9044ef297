#pragma once

#include "rondo/backend/engine/request.h"

namespace rondo {

// Traits of the engine on MPI: tensors on an accelerator are copied to the CPU and back.
inline constexpr EngineTraits kMpiTraits = {.device_tensors = true};

// Makes the engine on Open MPI. The engine is in a module of its own (rondo_mpi.so, see base/process.h), so
// that a process loads MPI only on demand. The ranks must have been started by mpirun (or by a launcher that
// MPI understands) and be numbered as MPI numbers them. Throws UsageError if there is no module, or if MPI
// sees another world.
c10::intrusive_ptr<c10d::Backend> make_mpi_backend(const BackendRequest& request);

}  // namespace rondo
