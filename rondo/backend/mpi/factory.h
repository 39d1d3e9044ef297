#pragma once

#include "rondo/backend/engine/request.h"

namespace rondo {

// Of the engine on MPI: tensors on an accelerator are copied on the way in and out.
inline constexpr EngineTraits kMpiTraits = {.device_tensors = true};

// Open MPI as an engine, in a module of its own (rondo_mpi.so) so that only who asks for it loads MPI. Looked
// for at $RONDO_MPI_MODULE, beside this program, in ../lib from there, and as the dynamic linker does. The
// ranks must have been started by mpirun (or by a launcher that MPI understands) and be numbered as MPI does.
// Throws UsageError when there is no module, or when MPI sees another world.
c10::intrusive_ptr<c10d::Backend> make_mpi_backend(const BackendRequest& request);

// The module that would be loaded; empty when there is none in the places above.
std::string mpi_module_path();

}  // namespace rondo
