#include "rondo/backend/engine_options.h"

namespace rondo {

std::vector<Declaration> declared_engines() {
  return {
      {.name = "gloo", .summary = "Gloo over TCP, between hosts"},
      {.name = "hierarchical",
       .summary = "one engine inside each host, another between them: hierarchical(native, gloo)"},
      {.name = "mpi", .summary = "Open MPI, under mpirun", .installed_apart = true},
      {.name = "native", .summary = "rondo's own, through shared memory, on one host"},
      {.name = "nccl", .summary = "NCCL, between GPUs", .installed_apart = true},
  };
}

}  // namespace rondo
