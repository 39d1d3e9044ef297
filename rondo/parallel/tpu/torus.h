#pragma once

#include <string>

#include "rondo/backend/context.h"
#include "rondo/env/environment.h"
#include "rondo/parallel/hooks/comm_hook.h"

namespace rondo {

// Ranks in rows and columns, row by row. Each has up to four neighbours: before and after it in its row and
// in its column, both of which close to rings.
struct Torus {
  int rows = 1;
  int columns = 1;
};

// "2x2", or "auto": TPU_TOPOLOGY of `environment` where it has two axes longer than one and as many chips as
// there are ranks, else as square as `ranks` allows. Throws UsageError naming both sides for a torus of
// another number of ranks.
Torus find_torus(const std::string& text, int ranks, const env::EnvironmentMap& environment);

// A communication hook that all-reduces buckets over the torus: rings along the columns, then along the rows,
// and back (collective/algorithms/torus_2d.cpp), in messages between neighbours only. They travel in a thread
// of the hook's own while the backward pass goes on. On CPU tensors; throws UsageError for others.
// With a `codec` (a name for collective::make_codec), all ranks gather all encodings over the torus and add
// what they stand for in rank order. Collective.
CommHook torus_hook(const Context& context, const Torus& torus, const std::string& codec = "none");

}  // namespace rondo
