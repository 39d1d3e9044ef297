// RANK, WORLD_SIZE and the rest: what torchrun and `rondo run` set, and what people export by hand.
#include "rondo/env/source.h"

namespace rondo::env {
namespace {

Settings read_torchrun(const EnvironmentMap& environment, const Settings&) {
  Settings settings;
  settings.take_integer(Field::rank, environment, "RANK");
  settings.take_integer(Field::world_size, environment, "WORLD_SIZE");
  settings.take_integer(Field::local_rank, environment, "LOCAL_RANK");
  settings.take_integer(Field::local_world_size, environment, "LOCAL_WORLD_SIZE");
  settings.take_integer(Field::node_rank, environment, "GROUP_RANK");
  settings.take_integer(Field::num_nodes, environment, "GROUP_WORLD_SIZE");
  settings.take_text(Field::role, environment, "ROLE_NAME");
  settings.take_integer(Field::role_rank, environment, "ROLE_RANK");
  settings.take_integer(Field::role_world_size, environment, "ROLE_WORLD_SIZE");
  settings.take_text(Field::master_addr, environment, "MASTER_ADDR");
  settings.take_integer(Field::master_port, environment, "MASTER_PORT");
  settings.take_text(Field::run_id, environment, "TORCHELASTIC_RUN_ID");
  settings.take_integer(Field::restart_count, environment, "TORCHELASTIC_RESTART_COUNT");
  return settings;
}

}  // namespace

const Source torchrun_source = {"torchrun", read_torchrun, started_by_launcher};

}  // namespace rondo::env
