#pragma once

#include <string>

#include "rondo/backend/context.h"
#include "rondo/env/environment.h"
#include "rondo/parallel/hooks/comm_hook.h"

namespace rondo {

// A torus of ranks in rows and columns, numbered row by row. Each rank has up to four neighbours: the
// previous and next in its row and in its column. Rows and columns are closed to rings.
struct Torus {
  int rows = 1;
  int columns = 1;
};

// Parses a torus such as "2x2", or "auto". For "auto" returns TPU_TOPOLOGY of `environment` if it has two
// axes longer than one and as many chips as ranks, otherwise the torus closest to a square. Throws UsageError
// with both numbers for a torus of another number of ranks.
Torus find_torus(const std::string& text, int ranks, const env::EnvironmentMap& environment);

// Returns a communication hook that all-reduces buckets over the torus: rings along the columns, then along
// the rows, and back (collective/algorithms/torus_2d.cpp). Messages pass between neighbours only, in a thread
// of the hook, while the backward pass continues. Device tensors are copied to the CPU. With a `codec` (a
// name for collective::make_codec), all ranks gather all encodings over the torus and add the decoded values
// in rank order. Collective.
CommHook torus_hook(const Context& context, const Torus& torus, const std::string& codec = "none");

}  // namespace rondo
