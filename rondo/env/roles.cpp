#include "rondo/env/roles.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::env {

void require_served_role(const Identity& identity) {
  const auto role = identity.origins.find(Field::role);
  if (role == identity.origins.end() || role->second.source != "tf_config") return;
  const bool replica = identity.role == "chief" || identity.role == "master" || identity.role == "worker";
  if (replica && identity.num_ps == 0) return;
  const std::string what =
      replica ? str("lists ", identity.num_ps, " tasks of role ps, of which this ", identity.role, " (index ",
                    identity.role_rank, ") would have to get its parameters")
              : str("gives this process the role ", identity.role, " (index ", identity.role_rank, ")");
  throw UsageError(
      str(role->second.variable, " ", what,
          ": this strategy serves no such role. Roles that train are chief, master and worker, all as "
          "replicas; take the others out of the cluster and do not start them, or train with strategy "
          "parameter_server, which serves ps"));
}

}  // namespace rondo::env
