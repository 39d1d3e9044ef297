#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "rondo/base/time.h"
#include "rondo/env/identity.h"

namespace rondo {

// The store through which the ranks of a job meet:
//   a world of one process         a store of its own
//   a worker of `rondo run`        the launcher's shared memory (one host, no port, no file)
//   file://                        c10d's FileStore at that path
//   env:// and tcp://              c10d's TCPStore; rank 0 listens, unless torchrun's agent does
// Blocking until the store can be reached. Throws Error naming the address when it cannot, and the port when
// it is taken.
c10::intrusive_ptr<c10d::Store> meet(const env::Identity& identity, const std::string& init_method,
                                     Duration timeout);

// The store that `rondo run` on one host gives its workers; null for a process that it did not start.
c10::intrusive_ptr<c10d::Store> launcher_store();

}  // namespace rondo
