#pragma once

#include "rondo/backend/engine/request.h"

namespace rondo {

// Makes c10d's ProcessGroupGloo. The engine binds to the interface named by GLOO_SOCKET_IFNAME, else to
// loopback if a launcher of this host started all ranks (RONDO_STORE_FD is set), else to the address from
// which this host reaches rank 0's host, else to the address of this host's name. Throws UsageError if rondo
// was built without Gloo's headers.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const BackendRequest& request);

// Returns whether this build has Gloo.
bool have_gloo();

}  // namespace rondo
