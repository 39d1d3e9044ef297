#pragma once

#include "rondo/backend/gloo/gloo_options.h"
#include "rondo/backend/hierarchical/hierarchical_options.h"
#include "rondo/backend/mpi/mpi_options.h"
#include "rondo/backend/native/native_options.h"
#include "rondo/backend/nccl/nccl_options.h"

namespace rondo {

// Calls visit(folder) for every folder with an engine, one line each. A folder has `Options`,
// `declaration()` and `engine()`; who uses only the first two links no libtorch.
template <class Visit>
void for_each_engine_folder(const Visit& visit) {
  visit(GlooFolder());
  visit(HierarchicalFolder());
  visit(MpiFolder());
  visit(NativeFolder());
  visit(NcclFolder());
}

}  // namespace rondo
