#include "rondo/backend/mpi/mpi_options.h"

namespace rondo {

Declaration MpiFolder::declaration() {
  return {.name = "mpi", .summary = "Open MPI, under mpirun", .installed_apart = true};
}

}  // namespace rondo
