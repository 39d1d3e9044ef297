// RANK, WORLD_SIZE and the rest: what torchrun and `rondo run` set, and what people export by hand.
#include "rondo/env/source.h"

namespace rondo::env {
namespace {

Claims read(const EnvironmentMap& environment, const Claims&) {
  Claims claims;
  claims.take_integer(Field::rank, environment, "RANK");
  claims.take_integer(Field::world_size, environment, "WORLD_SIZE");
  claims.take_integer(Field::local_rank, environment, "LOCAL_RANK");
  claims.take_integer(Field::local_world_size, environment, "LOCAL_WORLD_SIZE");
  claims.take_integer(Field::node_rank, environment, "GROUP_RANK");
  claims.take_integer(Field::num_nodes, environment, "GROUP_WORLD_SIZE");
  claims.take_text(Field::role, environment, "ROLE_NAME");
  claims.take_integer(Field::role_rank, environment, "ROLE_RANK");
  claims.take_integer(Field::role_world_size, environment, "ROLE_WORLD_SIZE");
  claims.take_text(Field::master_addr, environment, "MASTER_ADDR");
  claims.take_integer(Field::master_port, environment, "MASTER_PORT");
  claims.take_text(Field::run_id, environment, "TORCHELASTIC_RUN_ID");
  claims.take_integer(Field::restart_count, environment, "TORCHELASTIC_RESTART_COUNT");
  return claims;
}

}  // namespace

const Source torchrun_source = {"torchrun", read, started_by_launcher};

}  // namespace rondo::env
