#pragma once

#include <memory>
#include <string>

#include "apps/bench/collectives/contender.h"

namespace rondo::bench {

// Why Open MPI cannot take part here (no mpirun, or built without mpicc), with the way to get it; empty when
// it can.
std::string why_no_openmpi();

// Open MPI's own ranks, as many as ours, started by mpirun on rank 0 and told over FIFOs what to do; they
// sleep while others are measured. The processes end with the contender.
std::unique_ptr<Contender> make_openmpi_contender(int rank, int ranks);

}  // namespace rondo::bench
