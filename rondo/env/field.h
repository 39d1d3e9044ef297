#pragma once

#include <array>
#include <string>

namespace rondo::env {

// The things a source can say about a process.
enum class Field {
  rank,
  world_size,
  local_rank,
  local_world_size,
  node_rank,
  num_nodes,
  role,
  role_rank,
  role_world_size,
  master_addr,
  master_port,
  run_id,
  restart_count,
  num_ps,
};

// Every Field, in the order of its declaration.
inline constexpr std::array kAllFields = {Field::rank,
                                          Field::world_size,
                                          Field::local_rank,
                                          Field::local_world_size,
                                          Field::node_rank,
                                          Field::num_nodes,
                                          Field::role,
                                          Field::role_rank,
                                          Field::role_world_size,
                                          Field::master_addr,
                                          Field::master_port,
                                          Field::run_id,
                                          Field::restart_count,
                                          Field::num_ps};

// "rank", "world_size", ...
const char* to_string(Field field);

}  // namespace rondo::env
