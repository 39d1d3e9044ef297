#pragma once

#include "rondo/env/identity.h"

namespace rondo::env {

// Throws UsageError naming the role and what sees it for a process that is no replica of a model: a parameter
// server or an evaluator of TF_CONFIG, and a replica beside parameter servers, which would wait for them.
// Strategy parameter_server, which serves them, reads its roles with read_cluster() (cluster.h). TF_CONFIG's
// chief, master and workers are replicas; so is every role of another source, where it is the user's own word
// (torchrun's --role).
void require_served_role(const Identity& identity);

}  // namespace rondo::env
