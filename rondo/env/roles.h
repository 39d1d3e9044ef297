#pragma once

#include "rondo/env/identity.h"

namespace rondo::env {

// Throws UsageError, naming the role and its source, for a process that is not a replica of a model: a
// parameter server or evaluator of TF_CONFIG, or a worker beside parameter servers, which would wait for
// them. Strategy parameter_server serves these roles and reads them with read_cluster() (cluster.h).
// TF_CONFIG's chief, master and workers are replicas. So is every role from another source, because the user
// chose it (torchrun's --role).
void require_served_role(const Identity& identity);

}  // namespace rondo::env
