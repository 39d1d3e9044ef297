#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "rondo/backend/hierarchical/compression.h"
#include "rondo/backend/hierarchical/transports.h"
#include "rondo/collective/request.h"

namespace rondo::hierarchical {

struct AllReduceOptions {
  int inter_host_ranks =
      0;  // ranks of a host that exchange with other hosts, at most; 0: as many as the smallest host has
  std::size_t chunk_bytes = kChunkBytes;
};

// Reduces within the host so that every rank (or, on hosts of different sizes, the first `inter_host_ranks`)
// holds a part, exchanges the part with the ranks of the same local rank on other hosts, and gathers the
// parts within the host.
//
// `request` has its buffer as input and output; Reduction::average divides by the number of all ranks.
// Between two hosts, and for small parts, each sends its part to all others; between more, parts are reduced
// and gathered in pieces, so that a host sends 2(H-1)/H of the buffer, which is the least possible. Sums are
// added in host order, the same on all ranks. With `compression` (float32 only) parts travel encoded, and
// every rank gets the sum of what the encodings stand for.
std::unique_ptr<Operation> all_reduce(const CollectiveRequest& request, const HostMap& map,
                                      const AllReduceOptions& options,
                                      std::shared_ptr<Compression> compression);

}  // namespace rondo::hierarchical
