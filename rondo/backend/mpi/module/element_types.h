#pragma once

#include <mpi.h>

#include <ATen/core/Tensor.h>

#include "rondo/collective/dtype.h"

namespace rondo::mpi {

// MPI's name of an element type; float16 and bfloat16, which MPI does not have, are types of our own. Types
// that cannot be reduced are sent as bytes (`reduces` false; `per_element` then counts MPI elements). Throws
// UsageError for others. On the MPI thread.
struct ElementType {
  MPI_Datatype type;
  int per_element = 1;
};
ElementType element_type(at::ScalarType type, bool reduces);

// MPI's operation; SUM for an average, which the caller divides. Throws UsageError for what MPI cannot.
MPI_Op reduction(Reduction reduction, at::ScalarType type);

}  // namespace rondo::mpi
