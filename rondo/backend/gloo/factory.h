#pragma once

#include "rondo/backend/engine/request.h"

namespace rondo {

// c10d's ProcessGroupGloo. It binds to the interface named by GLOO_SOCKET_IFNAME, else to loopback when a
// launcher of this host started all ranks (RONDO_STORE_FD is set), else to the address from which this host
// reaches rank 0's, else to that of this host's name. Throws UsageError
// when rondo was built without Gloo's headers.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const BackendRequest& request);

// Whether this build has Gloo.
bool have_gloo();

}  // namespace rondo
