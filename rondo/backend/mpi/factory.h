#pragma once

#include "rondo/backend/engine/request.h"

namespace rondo {

// Of the engine on MPI: tensors on an accelerator are copied on the way in and out.
inline constexpr EngineTraits kMpiTraits = {.device_tensors = true};

// Makes the engine on Open MPI, which is in a module of its own (rondo_mpi.so, see base/process.h) so
// that only who asks for it loads MPI. The ranks must have been started by mpirun (or by a launcher that MPI
// understands) and be numbered as MPI does. Throws UsageError when there is no module, or when MPI sees
// another world.
c10::intrusive_ptr<c10d::Backend> make_mpi_backend(const BackendRequest& request);

}  // namespace rondo
